package cluster

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// relay is the cable of one node. This process carries each frame, so that it can delay and lose some of them: not each
// kernel has netem.
type relay struct {
	// Time that a frame is on its way, in nanoseconds: at least, and how much longer at most. Frames overtake each other.
	delay, jitter atomic.Int64
	// Of a thousand frames, how many are lost.
	lost atomic.Int64
}

// tap makes a network interface whose frames are read and written as a file. It is gone when the file is closed.
func tap(t *testing.T, name string) *os.File {
	t.Helper()
	file, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("/dev/net/tun: %v", err)
	}
	var request struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:len(request.name)-1], name)
	request.flags = syscall.IFF_TAP | syscall.IFF_NO_PI
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(file), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		t.Fatalf("%s: %v", name, errno)
	}
	made := os.NewFile(uintptr(file), name)
	t.Cleanup(func() { _ = made.Close() })
	return made
}

// carry brings frames from one end of the cable to the other until it is closed.
func (r *relay) carry(from, to *os.File) {
	for {
		frame := make([]byte, 2048)
		length, err := from.Read(frame)
		if err != nil {
			// An interface that is not up yet.
			if errno, is := err.(*os.PathError); is && errno.Err == syscall.EIO {
				time.Sleep(time.Millisecond)
				continue
			}
			return
		}
		if rand.Int64N(1000) < r.lost.Load() {
			continue
		}
		deliver := func() { _, _ = to.Write(frame[:length]) }
		wait := r.delay.Load()
		if jitter := r.jitter.Load(); jitter > 0 {
			wait += rand.Int64N(jitter)
		}
		if wait == 0 {
			deliver()
		} else {
			time.AfterFunc(time.Duration(wait), deliver)
		}
	}
}

// connect returns the cable between two network interfaces that it makes.
func newRelay(t *testing.T, one, other string) *relay {
	t.Helper()
	ends := []*os.File{tap(t, one), tap(t, other)}
	made := &relay{}
	go made.carry(ends[0], ends[1])
	go made.carry(ends[1], ends[0])
	return made
}
