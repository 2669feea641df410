package safebrowsing

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
)

func TestOwnListsOfAllFormatsAtWork(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	block := writeFile(t, t.TempDir(), "block.txt", strings.Join([]string{
		"plain.example", "0.0.0.0 hosts.example", "*.below.example", "||tree.example^", "@@||good.tree.example^",
		"rpz.example CNAME .", "http://url.example/", "http://path.example/x",
	}, "\n"))
	allow := writeFile(t, t.TempDir(), "allow.txt", "evil.example.com # until 2099-01-31\nended.tree.example # until 2020-01-31\n")
	w.start(w.corefile("block "+block, "allow "+allow+" hosts.example until 2020-01-31"))
	w.updated(1)
	for name, blocked := range map[string]bool{
		"plain.example.": true, "www.plain.example.": false,
		"hosts.example.": true, // its exception has ended
		"below.example.": false, "a.below.example.": true, "a.b.below.example.": true,
		"tree.example.": true, "a.tree.example.": true, "good.tree.example.": false, "a.good.tree.example.": false, "ended.tree.example.": true,
		"rpz.example.": true, "url.example.": true, "path.example.": false,
		"evil.example.com.": false,
	} {
		if m := w.ask(name, dns.TypeA); isBlocked(m) != blocked {
			t.Errorf("%s: Expected blocked %v, got\n%v", name, blocked, m)
		}
	}
}

func TestAFileOfSeveralServerBlocksAndReloadsIsReadOnce(t *testing.T) {
	lines := captureLog(t)
	w := newWorld(t)
	block := writeFile(t, t.TempDir(), "block.txt", "blocked.example\nno entry of any kind\n")
	corefile := w.corefile("block "+block) + strings.Replace(w.corefile("block "+block), ".:0", "example.net:0", 1)
	w.start(corefile)
	w.updated(1)
	for range 3 {
		if err := w.reload(corefile); err != nil {
			t.Fatal(err)
		}
		w.wantBlocked("blocked.example.", dns.TypeA, "blocklist block.txt")
	}
	if got := lines.about(block + " is in force with 1 name; 1 line is not a list entry (first at line 2: \"no entry of any kind\")"); len(got) != 1 {
		t.Errorf("Expected the file to be read once, and one line about it, got %q", got)
	}
}

// A list that does less than its operator thinks, or more, says so in one line.
func TestAListThatIsNotWhatItShouldBeIsAWarning(t *testing.T) {
	for _, test := range []struct {
		name, content string
		allow         bool
		level, want   string // what the line holds after the path; "" the file
	}{
		{"names", "a.example\nb.example\n", false, "INFO", " is in force with 2 names"},
		{"one name", "a.example\n", false, "INFO", " is in force with 1 name"},
		{"HTML", "<!DOCTYPE html>\n<html>\nForbidden\n</html>\n", false, "WARNING", " blocks nothing: it looks like an HTML page; download the list again"},
		{"gzip", "\x1f\x8b\x08\x00xyz\nforbidden\n", false, "WARNING", " blocks nothing: it is compressed (gzip); unpack it"},
		{"UTF-16", "\xff\xfea\x00\n\x00", false, "WARNING", " blocks nothing: it is UTF-16; save it as UTF-8"},
		{"empty", "", false, "WARNING", " blocks nothing: it is empty"},
		{"comments", "# none\n", false, "WARNING", " blocks nothing: it has only comments"},
		{"empty allow list", "", true, "WARNING", " allows nothing: it is empty"},
		{"ended", "a.example # until 2020-01-01\n", true, "WARNING", " allows nothing: it has only entries that have ended; 1 entry has ended"},
		{"a star", "*\n", false, "WARNING", ` blocks nothing: it has no line that can be used; 1 line is not a list entry (first at line 1: "*")`},
		{"not supported", "a.example\n/x/\n||b.example^$client=c\n", false, "INFO", " is in force with 1 name; 2 lines are not supported (1 regular expression, first at line 2; 1 with $client, first at line 3)"},
		{"bad lines", "a.example\nno entry\n", false, "WARNING", ` is in force with 1 name; 1 line is not a list entry (first at line 2: "no entry")`},
		{"machines", "a.example\n192.168.1.10 nas.home.arpa nas\n", false, "WARNING", " is in force with 1 name; 1 line with another address than 0.0.0.0, 127.0.0.1 or the sinkhole blocks nothing (first at line 2: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := captureLog(t)
			file := writeFile(t, t.TempDir(), "list.txt", test.content)
			c := config.Block{Own: []config.OwnFile{{Path: file, Allow: test.allow}}}
			for range 2 { // two server blocks
				files, err := openOwn(&c)
				if err != nil {
					t.Fatal(err)
				}
				defer closeOwn(files)
			}
			got := lines.about(file)
			if len(got) != 1 || !strings.Contains(got[0], "["+test.level+"]") || !strings.Contains(got[0]+"\n", file+test.want) {
				t.Errorf("Expected one line of level %s that says %q, got %q", test.level, test.want, got)
			}
		})
	}
}

func TestAListOfAWholeTopLevelDomainIsAWarning(t *testing.T) {
	for content, want := range map[string]string{
		"x.example\n||de^\n*.net\n": ": line 2 blocks the whole top-level domain de; line 3 blocks the whole top-level domain net",
		"*.co.uk CNAME .\n":         ": line 1 blocks the whole public suffix co.uk",
		"com\n":                     ": line 1 blocks the name com itself, but no name below it: to block these too, write .com",
	} {
		lines := captureLog(t)
		file := writeFile(t, t.TempDir(), "list.txt", content)
		files, err := openOwn(&config.Block{Own: []config.OwnFile{{Path: file}}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeOwn(files)
		if got := lines.about("[WARNING] plugin/safebrowsing: List " + file + want); len(got) != 1 {
			t.Errorf("Expected %q, got %q", want, lines.about(file))
		}
	}
}

// A file that fails and is well again costs two lines, and the metrics say so
// meanwhile.
func TestAListThatFailsIsLoggedOnceAndMeasured(t *testing.T) {
	lines := captureLog(t)
	dir := t.TempDir()
	file := writeFile(t, dir, "list.txt", "a.example\nb.example\nno entry\n/x/\n192.168.1.1 nas\n")
	changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := config.Block{Own: []config.OwnFile{{Path: file}}}
		files, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		second, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		want := func(when string, entries, bad, unsupported, last, failing float64) {
			t.Helper()
			for name, want := range map[string]float64{
				"entries": entries, "bad_lines": bad, "unsupported_lines": unsupported, "last_change_timestamp_seconds": last, "failing": failing,
			} {
				if got := metric(t, "own_list_"+name, "file", file); got != want {
					t.Errorf("%s: Expected %s of %v, got %v", when, name, want, got)
				}
			}
		}
		poll := func() {
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		want("read", 2, 1, 2, float64(changed.Unix()), 0)
		os.Remove(file)
		for range 3 {
			poll()
		}
		want("gone", 2, 1, 2, float64(changed.Unix()), 1)
		writeFile(t, dir, "list.txt", "c.example\n")
		later := changed.Add(time.Hour)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		poll()
		want("back", 1, 0, 0, float64(later.Unix()), 0)
		closeOwn(files)
		want("in use by one", 1, 0, 0, float64(later.Unix()), 0)
		closeOwn(second)
		want("closed", 0, 0, 0, 0, 0)
	})
	got := lines.about("List " + file)
	if len(got) != 3 || !strings.Contains(got[1], "[ERROR]") ||
		!strings.Contains(got[1], file+" cannot be used: no such file or directory. The 2 names read before stay in force; the file is looked at every 5 seconds") ||
		!strings.Contains(got[2], file+" can be used again and is in force with 1 name") {
		t.Errorf("Expected lines at the start, at the failure and at its end, got %q", got)
	}
}

func TestMetricsOfListsThatAreOpenedTwiceInDifferentWays(t *testing.T) {
	file := writeFile(t, t.TempDir(), "list.txt", "192.0.2.9 a.example\n0.0.0.0 b.example\n")
	c := config.Block{Own: []config.OwnFile{{Path: file, Allow: true}, {Path: file}}}
	for _, sinkhole := range []string{"0.0.0.0", "192.0.2.9"} {
		c.IPv4 = netip.MustParseAddr(sinkhole)
		files, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		defer closeOwn(files)
	}
	if got := metric(t, "own_list_failing", "file", file); got != 0 { // fails if a series is there twice
		t.Errorf("Expected no failure, got %v", got)
	}
	if n := metric(t, "own_list_entries", "file", file); n != 1 && n != 2 {
		t.Errorf("Expected the entries of one of the lists, got %v", n)
	}
}

// A list is changed while queries come at ten thousand a second, or as many as
// this machine can do: none is lost, and none waits for the list.
func TestAChangeOfAListUnderLoadLosesNoQuery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as it takes to see that a file has changed")
	}
	w := newWorld(t)
	var text strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&text, "host%d.example.net\n", i)
	}
	block := writeFile(t, t.TempDir(), "block.txt", text.String())
	w.start(strings.Replace(w.corefile("block "+block), "forward . "+w.upstream, "whoami", 1))
	w.updated(1)
	const clients, rate = 4, 10_000
	address, stop := w.address("udp"), make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	for worker := range clients {
		load.Go(func() {
			took := w.ask10k(worker, address, clients*time.Second/rate, stop)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	begun := time.Now()
	time.Sleep(time.Second)
	if err := os.WriteFile(block+".new", []byte(text.String()+"new.example.net\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(block+".new", block); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new list", func() bool { return isBlocked(w.ask("new.example.net.", dns.TypeA)) })
	close(stop)
	load.Wait()
	slices.Sort(all)
	t.Logf("%.0f queries a second; half within %s, 99 %% within %s, all within %s",
		float64(len(all))/time.Since(begun).Seconds(), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	if longest := all[len(all)-1]; longest > time.Second {
		t.Errorf("Expected no query to wait for the list, one took %s", longest)
	}
}

// ask10k asks for listed and other names, one each interval, and returns how long
// each answer took. A query that is not answered fails the test.
func (w *world) ask10k(worker int, address string, interval time.Duration, stop chan struct{}) (took []time.Duration) {
	conn, err := dns.DialTimeout("udp", address, time.Second)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	defer conn.Close()
	client := &dns.Client{Timeout: 3 * time.Second}
	next := time.Now()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return took
		default:
		}
		time.Sleep(time.Until(next))
		next = next.Add(interval)
		begun := time.Now()
		name := fmt.Sprintf("host%d.example.%s.", worker*1000+n%1000, []string{"net", "org"}[n%2])
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		answer, _, err := client.ExchangeWithConn(m, conn)
		if err != nil || (answer.Rcode == dns.RcodeNameError) != (n%2 == 0) {
			w.t.Errorf("%s: %v\n%v", name, err, answer)
			return took
		}
		took = append(took, time.Since(begun))
	}
}

// openOwn opens the lists of a server block.
func openOwn(b *config.Block) (*policy.Policy, error) {
	p := policy.New(b)
	return p, p.Open()
}

func closeOwn(p *policy.Policy) { p.Close() }
