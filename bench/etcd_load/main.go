// etcd_load measures PUTs of an etcd cluster as `kedge load` measures SETs of others, and prints one JSON object with
// the same names.
//
// It is made of etcd's own client library, as is the tool that etcd's authors measure with, and it talks to the leader
// only: a follower would pass each PUT on.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Random bytes from which values are cut.
var pool = func() string {
	bytes := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for at := range bytes {
		bytes[at] = byte(random.Uint32())
	}
	return string(bytes)
}()

// What one client saw.
type tally struct {
	latenciesNs []int64
	errors      map[string]int
}

func main() {
	endpoints := flag.String("endpoints", "", "HOST:PORT of the nodes, with commas between")
	connections := flag.Int("connections", 1, "connections of TCP")
	perConnection := flag.Int("clients-per-connection", 1, "clients that share a connection, each with one PUT in flight")
	items := flag.Int("num-items", 1000, "keys")
	size := flag.Int("size", 512, "bytes of a value")
	duration := flag.Duration("duration", 5*time.Second, "how long to run, with what is not measured")
	warmup := flag.Duration("warmup", 0, "how long not to measure at the beginning")
	flag.Parse()
	report, err := run(strings.Split(*endpoints, ","), *connections, *perConnection, *items, *size, *duration, *warmup)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, _ := json.Marshal(report)
	fmt.Println(string(text))
}

func dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
}

// leader asks the nodes which of them it is.
func leader(endpoints []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		for _, endpoint := range endpoints {
			client, err := dial(endpoint)
			if err != nil {
				continue
			}
			status, err := client.Status(ctx, endpoint)
			_ = client.Close()
			if err == nil && status.Leader != 0 && status.Leader == status.Header.MemberId {
				return endpoint, nil
			}
		}
	}
	return "", fmt.Errorf("no node of %v says that it leads", endpoints)
}

func run(endpoints []string, connections, perConnection, items, size int, duration, warmup time.Duration) (map[string]any, error) {
	endpoint, err := leader(endpoints)
	if err != nil {
		return nil, err
	}
	clients := make([]*clientv3.Client, connections)
	for index := range clients {
		if clients[index], err = dial(endpoint); err != nil {
			return nil, err
		}
		defer clients[index].Close()
		// Connected before the clock runs.
		if _, err := clients[index].Get(context.Background(), "nothing"); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	warm, end := began.Add(warmup), began.Add(duration)
	tallies := make([]tally, connections*perConnection)
	var running sync.WaitGroup
	for at := range tallies {
		running.Add(1)
		go func() {
			defer running.Done()
			share := max(items/len(tallies), 1)
			tallies[at] = put(clients[at%connections], at*share, share, size, warm, end)
		}()
	}
	running.Wait()
	return summary(tallies, time.Since(warm)), nil
}

// put writes its own keys in order, one after the other.
func put(client *clientv3.Client, first, count, size int, warm, end time.Time) tally {
	random := rand.New(rand.NewPCG(1, uint64(first)))
	seen := tally{errors: map[string]int{}}
	for turn := 0; ; turn++ {
		call := time.Now()
		if !call.Before(end) {
			return seen
		}
		from := random.IntN(len(pool) - size + 1)
		_, err := client.Put(context.Background(), fmt.Sprintf("%020d", first+turn%count), pool[from:from+size])
		done := time.Now()
		switch {
		case err != nil:
			seen.errors[err.Error()]++
		case done.After(warm):
			seen.latenciesNs = append(seen.latenciesNs, int64(done.Sub(call)))
		}
	}
}

func summary(tallies []tally, elapsed time.Duration) map[string]any {
	var all []int64
	kinds, failed, sum := map[string]int{}, 0, 0.0
	for _, each := range tallies {
		all = append(all, each.latenciesNs...)
		for kind, count := range each.errors {
			kinds[kind] += count
			failed += count
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	for _, latency := range all {
		sum += float64(latency)
	}
	at := func(quantile float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[int(float64(len(all)-1)*quantile)]) / 1e3
	}
	return map[string]any{
		"ops": len(all), "errors": failed, "errors_by_kind": kinds,
		"ops_per_s": float64(len(all)) / elapsed.Seconds(), "mean_us": sum / 1e3 / float64(max(len(all), 1)),
		"p50_us": at(0.50), "p90_us": at(0.90), "p99_us": at(0.99), "p999_us": at(0.999), "max_us": at(1),
	}
}
