package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestAFileOfSeveralServerBlocksAndReloadsIsReadOnce(t *testing.T) {
	lines := testkit.Capture(t)
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
	if got := lines.About(block + " is in force with 1 name; 1 line is not a list entry (first at line 2: \"no entry of any kind\")"); len(got) != 1 {
		t.Errorf("Expected the file to be read once, and one line about it, got %q", got)
	}
}

// A list is changed while queries come at ten thousand a second, or as many as
// this machine can do: none is lost, and none waits for the list.
func TestAChangeOfAListUnderLoadLosesNoQuery(t *testing.T) {
	testkit.Long(t)
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
	testkit.Until(w.t, "the new list", func() bool { return isBlocked(w.ask("new.example.net.", dns.TypeA)) })
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
