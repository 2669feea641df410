package test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// listServer serves one list, at any path.
type listServer struct {
	*httptest.Server
	content  atomic.Pointer[string]
	requests atomic.Int32
}

func newListServer(t *testing.T, content string) *listServer {
	s := new(listServer)
	s.content.Store(&content)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		fmt.Fprint(w, *s.content.Load())
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAListByURLBlocksAndAllows(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	block, allow := newListServer(t, "||tree.example^\nbad.example\n"), newListServer(t, "good.tree.example\n")
	url := strings.Replace(block.URL, "://", "://s3cretuser:s3cretpass@", 1) + "/new.txt?token=s3crettoken"
	w.start(w.corefile("block "+url+" refresh 12h max_bytes 1MiB", "allow "+allow.URL+"/ok.txt ok.example"))
	testkit.Until(w.t, "the lists", func() bool {
		return isBlocked(w.ask("a.tree.example.", dns.TypeA)) && !isBlocked(w.ask("good.tree.example.", dns.TypeA))
	})
	if m := w.ask("bad.example.", dns.TypeA); !isBlocked(m) {
		t.Errorf("Expected to be blocked, got\n%v", m)
	} else if text, _ := ede(m); !strings.HasPrefix(text, "blocklist new.txt#") {
		t.Errorf("Expected the name of the list, got %q", text)
	}
	testkit.Until(w.t, "the line about the list, which follows it", func() bool { return len(lines.About("/new.txt")) > 0 })
	line := lines.Only(t, "/new.txt")
	testkit.WantParts(t, line, "[INFO]", "List "+block.URL+"/new.txt#", "is in force with 2 names")
	if got := testkit.Metric(t, "own_list_entries", "file", strings.Fields(line[strings.Index(line, "List "):])[1]); got != 2 {
		t.Errorf("Expected 2 entries in the metrics, got %v", got)
	}
	testkit.Equal(t, "no secret of the URL in the log", lines.About("s3cret"), nil)
	var files []string
	testkit.Until(w.t, "two lists and two states in the db", func() bool { // a state is saved after its list
		files, _ = filepath.Glob(filepath.Join(w.db, "own", "*"))
		return len(files) == 4 && len(ownlist.URLStates()) == 2 && !slices.ContainsFunc(ownlist.URLStates(), func(s ownlist.URLState) bool { return s.Checked.IsZero() })
	})
	for _, file := range files {
		if raw, err := os.ReadFile(file); err != nil || strings.Contains(file+string(raw), "s3cret") {
			t.Errorf("%s: Expected no secret, got %v\n%s", file, err, raw)
		}
	}
}

func TestAListByURLIsFetchedOnceForAllServerBlocksAndReloads(t *testing.T) {
	for _, db := range []string{"on disk", "off"} {
		t.Run("db "+db, func(t *testing.T) {
			w := newWorld(t)
			list := newListServer(t, "bad.example\n")
			corefile := w.corefile("block "+list.URL) + strings.Replace(w.corefile("block "+list.URL), ".:0", "example.net:0", 1)
			if db == "off" {
				corefile = strings.ReplaceAll(corefile, "db "+w.db, "db off")
			}
			w.start(corefile)
			testkit.Until(w.t, "the list", func() bool { return isBlocked(w.ask("bad.example.", dns.TypeA)) })
			for range 2 {
				testkit.Must(t, w.reload(corefile))
				w.wantBlocked("bad.example.", dns.TypeA, "blocklist "+filepath.Base(list.URL))
			}
			w.stop()
			testkit.Equal(t, "one request", list.requests.Load(), 1)
		})
	}
}

// named returns a URL with a name instead of its address.
func named(t *testing.T, text, name string) string {
	t.Helper()
	u, err := url.Parse(text)
	testkit.Must(t, err)
	u.Host = net.JoinHostPort(name, u.Port())
	return u.String()
}

// The machine's resolver is this CoreDNS, as on most routers: names of the servers of lists
// and of the endpoint are asked here. One line of a list must not keep the next version of
// that list away, nor Safe Browsing's lists.
func TestAListByURLThatBlocksItsOwnServerRepairsItself(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if q.Qtype != dns.TypeA {
			return nil
		}
		address := net.ParseIP(upstreamAddress)
		if strings.EqualFold(q.Name, "lists.example.net.") || strings.EqualFold(q.Name, "sb.example.net.") {
			address = net.IPv4(127, 0, 0, 1)
		}
		return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 1}, A: address}}
	})
	w.endpoint = named(t, w.endpoint, "sb.example.net")
	list := newListServer(t, "bad.example.org\n")
	_, port, _ := net.SplitHostPort(testkit.FreeAddress(t, w.host))
	// The server is its own resolver. A list that is fetched before it serves would wait for long.
	resolver := startUpstreamWith(t, func(q dns.Question) []dns.RR {
		for range 200 {
			if m, err := dns.Exchange(new(dns.Msg).SetQuestion(q.Name, q.Qtype), w.host+":"+port); err == nil {
				return m.Answer
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})
	corefile := strings.Replace(w.corefile("block "+named(t, list.URL, "lists.example.net")+"/l.txt", "resolver "+resolver), ".:0 {", ".:"+port+" {", 1)
	corefile = strings.Replace(corefile, "\tcache\n", "", 1)
	blocked := func(name string) bool { return isBlocked(w.ask(name, dns.TypeA)) }
	// again makes the list be fetched at once: its state is gone, and its content stays in force.
	again := func(content string) {
		t.Helper()
		w.stop()
		w.google.ClientStarted()
		states, _ := filepath.Glob(filepath.Join(w.db, "own", "*.json"))
		for _, state := range states {
			testkit.Must(t, os.Remove(state))
		}
		list.content.Store(&content)
		before := list.requests.Load()
		w.start(corefile)
		testkit.Until(w.t, "a request for the list", func() bool { return list.requests.Load() > before })
	}
	w.start(corefile)
	testkit.Until(w.t, "the list", func() bool { return blocked("bad.example.org.") })
	testkit.Until(w.t, "Safe Browsing's lists", func() bool { return blocked("evil.example.com.") })
	again("bad.example.org\n||example.net^\n")
	testkit.Until(w.t, "the domain of the list's own server", func() bool { return blocked("www.example.net.") })
	if blocked("lists.example.net.") || blocked("sb.example.net.") {
		t.Error("a name that the server needs is blocked")
	}
	testkit.Until(w.t, "the line about the names", func() bool {
		return len(lines.About("2 names that it has pass, because this server needs them: lists.example.net (line 2), the host of a list by URL; sb.example.net (line 2)")) > 0
	})
	again("* CNAME .\n")
	testkit.Until(w.t, "the line about the list", func() bool { return len(lines.About("line 1 blocks every name")) > 0 })
	if blocked("www.example.org.") || !blocked("bad.example.org.") || !blocked("www.example.net.") {
		t.Error("the content before is not in force")
	}
	again("bad.example.org\nother.example.org\n")
	testkit.Until(w.t, "the repair of the list", func() bool { return !blocked("www.example.net.") && blocked("other.example.org.") })
	testkit.Until(w.t, "Safe Browsing's lists after a start", func() bool { return w.ready() && blocked("evil.example.com.") })
}
