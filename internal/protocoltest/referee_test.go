package protocoltest

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// bench is a server in a bubble with one list and hand-made requests.
type bench struct {
	*testing.T
	*Server
	violations recorder
	version    []byte // of the last list answer that was read
}

// inBubble runs f in a bubble of its own.
func inBubble(t *testing.T, name string, f func(b *bench)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{T: t}
			b.Server = New(&b.violations)
			b.Publish("se-4b", [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}})
			b.Publish("mw-4b", [][]byte{{9, 9, 9, 9}})
			b.SetMinimumWait("se-4b", time.Hour)
			b.SetMinimumWait("mw-4b", time.Hour)
			f(b)
		})
	})
}

// The entries of the bench's lists and one more of se-4b.
const (
	entryA = "\x01\x02\x03\x04"
	entryB = "\x05\x06\x07\x08"
	entryM = "\x09\x09\x09\x09"
	entryL = "\x01\x02\x03\x04\x05\x06" // begins with entryA
)

// lists fetches lists with these versions; the answer may be bad.
func (b *bench) lists(versions [][]byte, names ...string) {
	query := url.Values{"names": names}
	for _, v := range versions {
		query.Add("version", base64URL(v))
	}
	var m sbv5.BatchGetHashListsResponse
	if read(b, polite(b.T, "/v5/hashLists:batchGet", query), &m) == nil && len(m.HashLists) > 0 {
		b.version = m.HashLists[0].Version
	}
}

// search asks for prefixes; the answer may be bad.
func (b *bench) search(prefixes ...string) error {
	query := url.Values{}
	for _, p := range prefixes {
		query.Add("hashPrefixes", base64URL([]byte(p)))
	}
	return searchWith(b, polite(b.T, "/v5/hashes:search", query))
}

// notBefore checks that act is reported one nanosecond before the wait is over and
// not when it is over. Setup brings the client there.
func notBefore(t *testing.T, name, rule string, wait time.Duration, setup, act func(b *bench)) {
	inBubble(t, name+", early", func(b *bench) {
		setup(b)
		wantNone(b.T, b.violations.take())
		time.Sleep(wait - 1)
		act(b)
		wantOne(b.T, b.violations.take(), rule)
	})
	inBubble(t, name+", in time", func(b *bench) {
		setup(b)
		time.Sleep(wait)
		act(b)
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsRequestsTooEarly(t *testing.T) {
	se := func(b *bench) { b.lists(nil, "se-4b") }
	notBefore(t, "minimum wait", "minimum wait", time.Hour, se, se)
	notBefore(t, "minimum wait after restart", "minimum wait", time.Hour,
		func(b *bench) { se(b); b.ClientStarted() }, se)
	notBefore(t, "minimum wait of one list in a batch", "minimum wait", time.Hour, se,
		func(b *bench) { b.lists(nil, "mw-4b", "se-4b") })
	notBefore(t, "one failure", "back-off", 15*time.Minute,
		func(b *bench) { b.Break("", 1, Fault{Status: 503}); se(b) },
		func(b *bench) { b.lists(nil, "mw-4b") })
	notBefore(t, "ten failures", "back-off", 24*time.Hour, func(b *bench) {
		b.Break("", 10, Fault{CloseConnection: true})
		for n := range 10 {
			se(b)
			if n < 9 {
				time.Sleep(min(15*time.Minute<<n, 24*time.Hour))
			}
		}
	}, se)
	notBefore(t, "failure after success", "back-off", 15*time.Minute, func(b *bench) {
		b.Break("", 2, Fault{Status: 500})
		se(b)
		time.Sleep(15 * time.Minute)
		se(b)
		time.Sleep(30 * time.Minute)
		b.lists(nil, "mw-4b")
		b.Break("", 1, Fault{WrongName: true})
		se(b)
	}, se)
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.Break("batchGet", 2, Fault{WrongChecksum: true, List: "se-4b"})
		se(b)
		time.Sleep(15 * time.Minute)
		se(b)
		b.lists(nil, "mw-4b")
	}, se)
	notBefore(t, "no change, no wait", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		se(b)
		b.lists([][]byte{b.version}, "se-4b")
	}, se)
	notBefore(t, "time-out", "back-off", 15*time.Minute, func(b *bench) { b.timeOut() }, se)
	notBefore(t, "time-out of http.Client", "back-off", 15*time.Minute, func(b *bench) {
		b.Break("batchGet", 1, Fault{EndlessBody: true, Delay: time.Hour})
		client := http.Client{Transport: b.Server, Timeout: time.Second}
		if _, err := client.Do(polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}})); err == nil {
			b.Error("a slow answer came in time")
		}
	}, se)
	notBefore(t, "at once too often", ourFloor+", no minimum wait", time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		for range 33 {
			b.ForgetVersions("se-4b")
			se(b)
		}
	}, se)
}

// timeOut makes a list request that runs out of time.
func (b *bench) timeOut() {
	b.Break("batchGet", 1, Fault{Delay: time.Hour})
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	r := polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}}).WithContext(ctx)
	if _, err := b.RoundTrip(r); err == nil {
		b.Error("a slow answer came in time")
	}
}

func TestRefereeForgivesCancellation(t *testing.T) {
	inBubble(t, "cancelled context", func(b *bench) {
		b.Break("batchGet", 1, Fault{Delay: time.Hour})
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(time.Second, cancel)
		r := polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}}).WithContext(ctx)
		if _, err := b.RoundTrip(r); err == nil {
			b.Error("a slow answer came in time")
		}
		b.lists(nil, "se-4b")
		wantNone(b.T, b.violations.take())
		if got := b.Requests("batchGet")[0]; !got.Cancelled || got.Failed {
			b.Errorf("noted as %+v, want cancelled", got)
		}
	})
	inBubble(t, "told afterwards", func(b *bench) {
		b.timeOut()
		b.ClientCancelled()
		b.lists(nil, "se-4b")
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "cancelled while reading", func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		r := polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}}).WithContext(ctx)
		resp, err := b.RoundTrip(r)
		if err != nil {
			b.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(resp.Body); err == nil {
			b.Error("body read in spite of the cancellation")
		}
		resp.Body.Close()
		b.lists(nil, "se-4b")
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeForgetsWhatTheClientLost(t *testing.T) {
	inBubble(t, "wiped disk", func(b *bench) {
		b.lists(nil, "se-4b")
		b.Break("", 1, Fault{Status: 500})
		b.lists(nil, "mw-4b")
		b.ClientLostState()
		b.lists(nil, "se-4b")
		wantNone(b.T, b.violations.take())
	})
	inBubble(t, "wiped disk, version kept", func(b *bench) {
		b.lists(nil, "se-4b")
		b.ClientLostState()
		b.lists([][]byte{b.version}, "se-4b")
		wantOne(b.T, b.violations.take(), "version")
	})
	inBubble(t, "restart with an older version", func(b *bench) {
		b.lists(nil, "se-4b")
		old := b.version
		b.Publish("se-4b", nil)
		time.Sleep(time.Hour)
		b.lists([][]byte{old}, "se-4b")
		b.ClientStarted()
		time.Sleep(time.Hour)
		b.lists([][]byte{old}, "se-4b")
		wantNone(b.T, b.violations.take())
		time.Sleep(time.Hour)
		b.lists([][]byte{old}, "se-4b")
		wantOne(b.T, b.violations.take(), "want the newest") // the restart excuses one answer
	})
	inBubble(t, "restart while a search is under way", func(b *bench) {
		b.Break("search", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); _ = b.search("aaaa") }()
		synctest.Wait()
		b.ClientStarted()
		if err := b.search("aaaa"); err != nil {
			b.Error(err)
		}
		<-done
		wantNone(b.T, b.violations.take())
	})
}

func TestRefereeReportsParallelListRequests(t *testing.T) {
	inBubble(t, "same list", func(b *bench) {
		b.Break("batchGet", 1, Fault{Delay: time.Minute})
		done := make(chan struct{})
		go func() { defer close(done); b.lists(nil, "se-4b") }()
		synctest.Wait()
		other := &bench{T: b.T, Server: b.Server}
		other.lists(nil, "mw-4b")
		wantNone(b.T, b.violations.take())
		other.lists(nil, "se-4b")
		<-done
		wantOne(b.T, b.violations.take(), "under way")
	})
	inBubble(t, "a success after a failure", func(b *bench) {
		b.Break("batchGet", 1, Fault{Delay: time.Minute})
		b.Break("batchGet", 1, Fault{Status: 500})
		done := make(chan struct{})
		go func() { defer close(done); b.lists(nil, "se-4b") }()
		synctest.Wait()
		other := &bench{T: b.T, Server: b.Server}
		other.lists(nil, "mw-4b")
		<-done
		other.lists(nil, "mw-4b") // it ends the back-off
		wantNone(b.T, b.violations.take())
	})
}
