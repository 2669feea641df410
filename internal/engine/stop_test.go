package engine

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// hanging hangs, whatever the context of a request says, as a disk does.
type hanging struct {
	*protocoltest.Server
	hangs bool
	until chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.hangs {
		<-h.until
	}
	return h.Server.RoundTrip(r)
}

// The end of an engine does not wait for what hangs, nor does the next engine. The one that was
// given up says so once and reports nothing after that: its metrics are those of the next one.
func TestTheEndOfAnEngineDoesNotWaitForWhatHangs(t *testing.T) {
	lines := testkit.Capture(t)
	s := Settings{Endpoint: "http://hangs.example", Protocol: protocol.DialectV5.Name, Lists: "se-4b"}
	next := s
	next.Cache = 7
	synctest.Test(t, func(t *testing.T) {
		google := &hanging{Server: protocoltest.New(t), hangs: true, until: make(chan struct{})}
		google.SetMinimumWait("se-4b", time.Hour)
		google.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		r := NewRegistry(Edge{Transport: google, FirstContact: func() time.Duration { return 0 }})
		first, end, err := r.Acquire(s, "key")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begun := time.Now()
		_, endNext, err := r.Acquire(next, "key") // as a reload does
		if err != nil {
			t.Fatal(err)
		}
		end()
		if took := time.Since(begun); took != files.WaitLimit {
			t.Errorf("Expected a reload in %s, took %s", files.WaitLimit, took)
		}
		begun = time.Now()
		endNext()
		if took := time.Since(begun); took > files.WaitLimit/2 {
			t.Errorf("Expected the end of the next engine, which waits for the first, at once, took %s", took)
		}
		if got := lines.About("has not ended within"); len(got) != 1 {
			t.Errorf("Expected one line, got %q", got)
		}
		close(google.until)
		synctest.Wait()
		first.reporter.report(updater.Event{Kind: updater.ListUpdated, List: "se-4b", Entries: 77}) // as at the end of the write
		if got := lines.About("77 entries"); len(got) > 0 || testkit.Metric(t, "list_entries", "list", "se-4b") == 77 {
			t.Errorf("Expected no report of an engine that was given up, got %q", got)
		}
		google.hangs = false
		e, endLast, err := r.Acquire(s, "key")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if got := len(e.Lists()); got != 1 {
			t.Errorf("Expected the list to be fetched by the next engine, got %d", got)
		}
		endLast()
	})
}
