// sdk_load sends GETs and SETs at a fixed rate through the vendor's SDK until SIGTERM, and then writes one line for each
// request: when it was due and its latency, both in microseconds, and its error if it had one.
//
// Unlike `kedge load` it follows the map and repeats what a node refuses, as applications do: an error is one that the
// SDK does not hide. Latency counts from the due time.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Longest time to connect.
const connectTimeout = 30 * time.Second

// A finished request.
type sample struct {
	due     time.Time
	latency time.Duration
	err     error
}

// What the command line says.
type plan struct {
	url, user, password, bucket, samples   string
	items, size, setPct, rate, concurrency int
}

func main() {
	var p plan
	flag.StringVar(&p.url, "url", "couchbase://127.0.0.1:11210", "connection string")
	flag.StringVar(&p.user, "user", "Administrator", "user")
	flag.StringVar(&p.password, "password", "password", "password")
	flag.StringVar(&p.bucket, "bucket", "default", "bucket")
	flag.StringVar(&p.samples, "samples", "", "file to write")
	flag.IntVar(&p.items, "num-items", 1000, "keys, of 20 digits")
	flag.IntVar(&p.size, "size", 256, "bytes of a value")
	flag.IntVar(&p.setPct, "set-pct", 50, "percent of requests that are SETs")
	flag.IntVar(&p.rate, "rate", 5000, "requests per second")
	flag.IntVar(&p.concurrency, "clients", 64, "requests that may be in flight")
	flag.Parse()
	if err := run(p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(p plan) error {
	cluster, err := gocb.Connect(p.url, gocb.ClusterOptions{Username: p.user, Password: p.password})
	if err != nil {
		return err
	}
	defer cluster.Close(nil)
	bucket := cluster.Bucket(p.bucket)
	if err := bucket.WaitUntilReady(connectTimeout, nil); err != nil {
		return err
	}
	stop, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer end()
	fmt.Println("ready")
	began := time.Now()
	all := make([][]sample, p.concurrency)
	var running sync.WaitGroup
	for at := range all {
		running.Go(func() {
			all[at] = p.client(stop, bucket.DefaultCollection(), began, at)
		})
	}
	running.Wait()
	return write(p.samples, all)
}

// client sends every request number that is `at` modulo the number of clients.
func (p plan) client(stop context.Context, collection *gocb.Collection, began time.Time, at int) []sample {
	var samples []sample
	random := rand.New(rand.NewPCG(1, uint64(at)))
	value := make([]byte, p.size)
	for index := range value {
		value[index] = byte(random.Uint32())
	}
	raw := gocb.NewRawBinaryTranscoder()
	for number := at; ; number += p.concurrency {
		due := began.Add(time.Duration(float64(number) / float64(p.rate) * float64(time.Second)))
		select {
		case <-stop.Done():
			return samples
		case <-time.After(time.Until(due)):
		}
		key := fmt.Sprintf("%020d", random.IntN(p.items))
		var err error
		if random.IntN(100) < p.setPct {
			_, err = collection.Upsert(key, value, &gocb.UpsertOptions{Transcoder: raw})
		} else {
			_, err = collection.Get(key, &gocb.GetOptions{Transcoder: raw})
		}
		samples = append(samples, sample{due, time.Since(due), err})
	}
}

// kind is the innermost error, on one line.
func kind(err error) string {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

func write(path string, all [][]sample) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for _, samples := range all {
		for _, each := range samples {
			fmt.Fprintf(out, "%d %d", each.due.UnixMicro(), each.latency.Microseconds())
			if each.err != nil {
				fmt.Fprintf(out, " %s", kind(each.err))
			}
			fmt.Fprintln(out)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Close()
}
