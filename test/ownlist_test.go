package test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// What a zone file says of a name holds, but for a respond in the Corefile. Only passthru is above that.
func TestAnswersOfAPolicyZone(t *testing.T) {
	zone := writeFile(t, t.TempDir(), "policy.rpz", `$TTL 1h
@ SOA localhost. root.localhost. 1 2h 30m 1w 1h
nx.example CNAME .
*.nx.example CNAME *.
nodata.example CNAME *.
local.example A 192.0.2.66
garden.example CNAME walled.example.
pass.example CNAME rpz-passthru.
local-zone: "refused.example." always_refuse
`)
	for respond, rcodes := range map[string]map[string]int{
		"": {"nx.example.": dns.RcodeNameError, "www.nx.example.": dns.RcodeSuccess, "nodata.example.": dns.RcodeSuccess,
			"local.example.": dns.RcodeNameError, "garden.example.": dns.RcodeNameError, "x.refused.example.": dns.RcodeRefused},
		"respond nxdomain":            {"www.nx.example.": dns.RcodeNameError, "nodata.example.": dns.RcodeNameError, "refused.example.": dns.RcodeNameError},
		"respond refused":             {"nx.example.": dns.RcodeRefused, "nodata.example.": dns.RcodeRefused, "local.example.": dns.RcodeRefused},
		"respond sinkhole 192.0.2.99": {"nx.example.": dns.RcodeSuccess, "nodata.example.": dns.RcodeSuccess},
	} {
		t.Run("with "+respond, func(t *testing.T) {
			all := transports(t, "block "+zone+"\n"+respond)
			ask := func(name string) *dns.Msg {
				answer, err := all["tcp"](query(name, dns.TypeA))
				testkit.Must(t, err)
				return answer
			}
			for name, rcode := range rcodes {
				m := ask(name)
				if _, blocked := ede(m); !blocked || m.Rcode != rcode {
					t.Errorf("%s: Expected %s and to be blocked, got\n%v", name, dns.RcodeToString[rcode], m)
				}
				testkit.Equal(t, name+": it has a record", len(m.Answer) == 1, strings.HasPrefix(respond, "respond sinkhole"))
			}
			testkit.Equal(t, "passthru", ask("pass.example.").Rcode, dns.RcodeSuccess)
		})
	}
}

func TestANameThatAPolicyZoneDropsGetsNoAnswer(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	zone := writeFile(t, t.TempDir(), "drop.rpz", "drop.example CNAME rpz-drop.\n")
	counted := testkit.Metric(t, "blocked_total", "list", zone)
	host := ownHost()
	startInstance(t, overAll(t, host, "safebrowsing {\nblock "+zone+"\n}\nwhoami"))
	var asked sync.WaitGroup
	for transport, exchange := range asksOf(t, host, 2*time.Second) {
		asked.Go(func() {
			m, err := exchange(new(dns.Msg).SetQuestion("drop.example.", dns.TypeA))
			if timeout, ok := errors.AsType[net.Error](err); transport != "https" && (!ok || !timeout.Timeout()) {
				t.Errorf("%s: Expected no answer, got %v\n%v", transport, err, m)
			}
			if transport == "https" && err == nil && len(m.Question) > 0 { // HTTP has to have an answer: the server's is the status 500
				t.Errorf("Expected no answer over HTTPS, got\n%v", m)
			}
		})
	}
	asked.Wait()
	all := asksOf(t, host, patience)
	for transport, exchange := range all { // the server still answers
		m, err := exchange(new(dns.Msg).SetQuestion("www.drop.example.", dns.TypeA))
		testkit.Must(t, err)
		testkit.Equal(t, transport+": another name", m.Rcode, dns.RcodeSuccess)
	}
	testkit.Equal(t, "names counted as blocked", testkit.Metric(t, "blocked_total", "list", zone)-counted, float64(len(all)))
	over := transports(t, "respond nodata\nblock "+zone)
	if m, err := over["udp"](new(dns.Msg).SetQuestion("drop.example.", dns.TypeA)); err != nil || m.Rcode != dns.RcodeSuccess || len(m.Ns) != 1 {
		t.Errorf("Expected respond to win, got %v\n%v", err, m)
	}
}

// Over QUIC each query has a stream, and a client has 256 of them at once.
func TestNamesThatAreDroppedLeaveNoStreamsOpen(t *testing.T) {
	ask := newWorld(t).overQUIC("block " + writeFile(t, t.TempDir(), "drop.rpz", "drop.example CNAME rpz-drop.\n"))
	var dropped sync.WaitGroup
	for range 300 {
		dropped.Go(func() {
			_, err := ask("drop.example.")
			testkit.Is(t, "the end of the stream and no answer", err, io.EOF)
		})
	}
	dropped.Wait()
	if m, err := ask("clean.example.org."); err != nil || len(m.Answer) != 1 {
		t.Errorf("Expected the connection to go on, got %v, %v", m, err)
	}
}

func TestATargetThatAPolicyZoneDropsGetsNoAnswer(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	zone := writeFile(t, t.TempDir(), "drop.rpz", "tracker.example CNAME rpz-drop.\n")
	w := newWorld(t)
	w.upstream = aliases(t, "@ 300 IN CNAME tracker.example.")
	w.run("inspect cname", "block "+zone)
	c := &dns.Client{Timeout: 2 * time.Second}
	_, _, err := c.Exchange(new(dns.Msg).SetQuestion("www.shop.example.", dns.TypeA), w.address("udp"))
	testkit.Is(t, "the end of the wait for an answer", err, os.ErrDeadlineExceeded)
}

// An address in a hosts file blocks where it is the sinkhole's, and only there.
func TestHostsLinesWithAnotherAddressDoNotBlock(t *testing.T) {
	w := newWorld(t)
	block := "block " + writeFile(t, t.TempDir(), "hosts", "192.0.2.99 sunk.example other.example\n")
	sinkhole := strings.Replace(w.corefile(block, "respond sinkhole 192.0.2.99"), ".:0", "sunk.example:0", 1)
	w.serve(w.corefile(block) + sinkhole)
	w.wantPassed("other.example.", dns.TypeA)
	m := w.ask("sunk.example.", dns.TypeA)
	testkit.WantParts(t, m.String(), "sunk.example.\t60\tIN\tA\t192.0.2.99\n")
}

// A path may be any bytes, and a variable brings them into a Corefile. A label of a metric may not: each query for a name of the
// list failed, and nobody could read the metrics.
func TestAPathThatIsNotUTF8(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	testkit.Must(t, errors.Join(os.WriteFile(dir+"/l\xe9.txt", []byte("bad.example\n"), 0o600), os.Mkdir(dir+"/d\xe9", 0o700)))
	t.Setenv("LIST", dir+"/l\xe9.txt")
	t.Setenv("DB", dir+"/d\xe9")
	w.db = "{$DB}"
	w.start(w.corefile("block {$LIST}"))
	testkit.Equal(t, "blocked", isBlocked(w.ask("bad.example.", dns.TypeA)), true)
	testkit.Equal(t, "counted", testkit.Metric(t, "blocked_total", "list", dir+"/l%E9.txt"), 1)
	testkit.Equal(t, "entries", testkit.Metric(t, "own_list_entries", "file", dir+"/l%E9.txt"), 1)
	testkit.Equal(t, "lists of that db", testkit.CountSamples(t, "list_entries", "db", dir+"/d%E9"), 3)
}

type listServer struct {
	*httptest.Server
	requests atomic.Int32
}

func newListServer(t *testing.T, content string) *listServer {
	s := new(listServer)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		fmt.Fprint(w, content)
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
	m := w.ask("bad.example.", dns.TypeA)
	text, _ := ede(m)
	testkit.Equal(t, "blocked", isBlocked(m), true)
	testkit.WantStart(t, text, "blocklist new.txt#")
	testkit.Until(w.t, "the line about the list, which follows it", func() bool { return len(lines.About("/new.txt")) > 0 })
	line := lines.Only(t, "/new.txt")
	testkit.WantParts(t, line, "[INFO]", "List "+block.URL+"/new.txt#", "is in force with 2 names")
	name := strings.Fields(line[strings.Index(line, "List "):])[1]
	testkit.Equal(t, "entries", testkit.Metric(t, "own_list_entries", "file", name), 2)
	testkit.Equal(t, "no secret of the URL in the log", lines.About("s3cret"), nil)
	var files []string
	testkit.Until(w.t, "two lists and two states in the db", func() bool { // a state is saved after its list
		files, _ = filepath.Glob(filepath.Join(w.db, "own", "*"))
		return len(files) == 4 && len(ownlist.URLStates()) == 2 && !slices.ContainsFunc(ownlist.URLStates(), func(s ownlist.URLState) bool { return s.Checked.IsZero() })
	})
	for _, file := range files {
		testkit.WantNone(t, file+testkit.Read(t, file), "s3cret")
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

// Names are answered meanwhile, and a metric tells of it.
func TestAListByURLThatCannotBeUsedIsToldAndMeasured(t *testing.T) {
	lines := testkit.Capture(t)
	w, list := newWorld(t), newListServer(t, "* CNAME .\n")
	w.run("block " + list.URL + "/l.txt")
	w.wantPassed("any.example.", dns.TypeA)
	testkit.Until(t, "the line", func() bool { return len(lines.About("line 1 blocks every name")) > 0 })
	testkit.Equal(t, "failing", testkit.Metric(t, "own_list_failing", "file", list.URL+"/l.txt"), 1)
	testkit.Equal(t, "the last success", testkit.Metric(t, "own_list_last_success_timestamp_seconds", "file", list.URL+"/l.txt"), 0)
}
