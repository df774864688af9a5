package sdk

import (
	"errors"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func TestClusterBecomesReady(t *testing.T) {
	// A connection of its own: the shared one also reports buckets that other tests have dropped.
	own := must(connect(shared, user, password))(t)
	defer own.Close(nil)
	if err := own.Bucket(bucketName).WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	if err := own.WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	report := must(own.Diagnostics(nil))(t)
	if report.State != gocb.ClusterStateOnline {
		t.Fatalf("state %v: %+v", report.State, report.Services)
	}
}

func TestPingReachesEveryService(t *testing.T) {
	report := must(cluster.Bucket(bucketName).Ping(&gocb.PingOptions{
		ServiceTypes: []gocb.ServiceType{gocb.ServiceTypeKeyValue, gocb.ServiceTypeManagement},
	}))(t)
	for _, service := range []gocb.ServiceType{gocb.ServiceTypeKeyValue, gocb.ServiceTypeManagement} {
		endpoints := report.Services[service]
		if len(endpoints) == 0 {
			t.Fatalf("no report of service %v", service)
		}
		for _, endpoint := range endpoints {
			if endpoint.State != gocb.PingStateOk {
				t.Fatalf("%+v", endpoint)
			}
		}
	}
}

func TestWrongCredentials(t *testing.T) {
	for _, pair := range [][2]string{{user, "wrong"}, {"nobody", password}, {"nobody", "wrong"}} {
		wrong, err := connect(shared, pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		bucket := wrong.Bucket(bucketName)
		options := &gocb.WaitUntilReadyOptions{RetryStrategy: failFast{}}
		wantError(t, bucket.WaitUntilReady(10*time.Second, options), gocb.ErrAuthenticationFailure)
		_ = wrong.Close(nil)
	}
}

func TestMissingBucket(t *testing.T) {
	// The SDK cannot tell a bucket that is not there from one that the user may not open.
	bucket := cluster.Bucket("no-such-bucket")
	options := &gocb.WaitUntilReadyOptions{RetryStrategy: failFast{}}
	err := bucket.WaitUntilReady(10*time.Second, options)
	if !errors.Is(err, gocb.ErrAuthenticationFailure) && !errors.Is(err, gocb.ErrBucketNotFound) {
		t.Fatalf("got %v", err)
	}
}

func TestServicesThatAreNotThereFailAtOnce(t *testing.T) {
	_, err := cluster.Query("SELECT 1", &gocb.QueryOptions{RetryStrategy: failFast{}})
	wantError(t, err, gocb.ErrServiceNotAvailable)
}

func TestNamedCollectionsFailCleanly(t *testing.T) {
	named := cluster.Bucket(bucketName).Scope("s").Collection("c")
	if _, err := named.Get("key", &gocb.GetOptions{RetryStrategy: failFast{}, Timeout: 2 * time.Second}); err == nil {
		t.Fatal("a collection that is not there answered")
	}
}
