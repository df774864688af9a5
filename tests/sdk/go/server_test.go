package sdk

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	user       = "Administrator"
	password   = "password"
	bucketName = "default"

	readyTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

var (
	readyLine = regexp.MustCompile(`^ready kv=\S+:(\d+) mgmt=\S+:(\d+) memcached=\S+:(\d+)`)
	readyTLS  = regexp.MustCompile(` kvs=\S+:(\d+)`)
)

// kedge is a server with a data directory of its own; its ports stay the same when it is started again.
type kedge struct {
	directory string
	ports     [3]int // KV, management, memcached
	tlsPort   string // KV over TLS, if it is served
	flags     []string
	command   *exec.Cmd
}

func binary() (string, error) {
	path := os.Getenv("KEDGE_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "..", "target", "release", "kedge")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run `cargo build --release -p kedge`, or set KEDGE_BIN", err)
	}
	return path, nil
}

func newServer(flags ...string) (*kedge, error) {
	directory, err := os.MkdirTemp("", "kedge-test-")
	if err != nil {
		return nil, err
	}
	server := &kedge{directory: directory, flags: flags}
	if err := server.start(); err != nil {
		server.remove()
		return nil, err
	}
	return server, nil
}

// ownServer starts a server that only one test uses, so that it may be ended, with more flags.
func ownServer(t *testing.T, flags ...string) *kedge {
	t.Helper()
	server, err := newServer(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.remove)
	return server
}

func (s *kedge) start() error {
	path, err := binary()
	if err != nil {
		return err
	}
	arguments := append([]string{"serve",
		"--data-dir", filepath.Join(s.directory, "data"),
		"--kv-port", strconv.Itoa(s.ports[0]),
		"--mgmt-port", strconv.Itoa(s.ports[1]),
		"--memcached-port", strconv.Itoa(s.ports[2]),
		"--listen", "127.0.0.1",
		"--bucket", bucketName, "--user", user, "--password", password}, s.flags...)
	s.command = exec.Command(path, arguments...)
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.command.Stderr = log
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.command.Start(); err != nil {
		return err
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		lines <- line
	}()
	select {
	case line := <-lines:
		match := readyLine.FindStringSubmatch(line)
		if match == nil {
			return fmt.Errorf("the server did not become ready: %q\n%s", line, s.log())
		}
		for index := range s.ports {
			s.ports[index], _ = strconv.Atoi(match[index+1])
		}
		if withTLS := readyTLS.FindStringSubmatch(line); withTLS != nil {
			s.tlsPort = withTLS[1]
		}
		return nil
	case <-time.After(readyTimeout):
		return fmt.Errorf("the server was not ready within %v\n%s", readyTimeout, s.log())
	}
}

func (s *kedge) connectionString() string {
	return fmt.Sprintf("couchbase://127.0.0.1:%d", s.ports[0])
}

func (s *kedge) logPath() string { return filepath.Join(s.directory, "stderr") }

func (s *kedge) log() string {
	text, _ := os.ReadFile(s.logPath())
	return string(text)
}

// terminate sends SIGTERM and fails the test unless the server exits with 0.
func (s *kedge) terminate(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("the server ended with %v\n%s", err, s.log())
		}
	case <-time.After(stopTimeout):
		t.Fatalf("the server did not end within %v", stopTimeout)
	}
}

// kill sends SIGKILL: no goodbye, nothing is flushed.
func (s *kedge) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// remove ends the server if it runs and removes its data directory.
func (s *kedge) remove() {
	if s.command != nil && s.command.Process != nil && s.command.ProcessState == nil {
		s.kill()
	}
	_ = os.RemoveAll(s.directory)
}
