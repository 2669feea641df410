package ownlist

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The end of a list does not wait for what hangs. A request that ignores its context stands in
// for the disk.
func TestClosingAListByURLDoesNotWaitForADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		r := newURLRegistry(patient, transport(func(*http.Request) (*http.Response, error) {
			<-hung
			return nil, errors.New("it was given up")
		}))
		l := r.open(URLConfig{URL: "https://lists.example/list.txt", DB: t.TempDir(), Refresh: DefaultRefresh}, Config{}, nil)
		time.Sleep(time.Minute)
		begun := time.Now()
		l.Close()
		if took := time.Since(begun); took != files.WaitLimit {
			t.Errorf("got %s, want %s", took, files.WaitLimit)
		}
		close(hung)
		synctest.Wait() // it writes its state
	})
}
