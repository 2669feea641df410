package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// lookingBack starts a CoreDNS with look_back, and with log if it may keep names. It returns the URL of its page.
func (w *world) lookingBack(names bool, properties ...string) (c *child, page string) {
	w.t.Helper()
	if names {
		properties = append(properties, "log")
	}
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		w.google.SetMinimumWait(list, time.Second)
	}
	w.publish("se-4b", "unrelated.example/")
	c = newChild(w.t, w)
	page = testkit.FreeAddress(w.t, w.host)
	c.configure(w.uncached(append(properties, "look_back 1h", "status "+page+" names public")...))
	c.Process = testkit.StartWith(w.t, []string{childVariable + "=1", "GOGC=25", "GODEBUG=clobberfree=1"}, os.Args[0], "-conf", c.file)
	testkit.Until(w.t, "the first answer", c.answers)
	testkit.Until(w.t, "the list", func() bool {
		return c.metric(`coredns_safebrowsing_list_entries{db="`+w.db+`",endpoint="`+w.endpoint+`",list="se-4b"}`) > 0
	})
	return c, "http://" + page + "/"
}

// query asks for a name without a name in a message of this package, and returns the rcode.
func (c *child) query(name string) int {
	c.t.Helper()
	m, _, err := (&dns.Client{Timeout: patience}).Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), c.address)
	testkit.Must(c.t, err)
	return m.Rcode
}

// A name that is listed later is told by the log, the metric, the door and the page, and by all the same:
// with log by its name and who asked, without it by how many did.
func TestANameThatIsListedLaterIsToldEverywhere(t *testing.T) {
	t.Parallel()
	for _, names := range []bool{true, false} {
		t.Run(fmt.Sprintf("names %v", names), func(t *testing.T) {
			t.Parallel()
			testkit.SameDay(t)
			w := newWorld(t)
			c, page := w.lookingBack(names)
			for _, name := range []string{"late.example.com.", "fine.example.com."} {
				testkit.Equal(t, name, c.query(name), dns.RcodeSuccess)
			}
			w.google.AddThreat("late.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
			w.publish("se-4b", "unrelated.example/", "late.example.com/", "fine.example.com/")
			testkit.Until(t, "look-back", func() bool { return c.metric("coredns_safebrowsing_listed_late_total") == 1 })
			want := `1 device asked at \d\d:\d\d for a name that is listed as phishing since \d\d:\d\d`
			if names {
				want = `(` + regexp.QuoteMeta(w.host) + `|127\.0\.0\.1) asked for late.example.com at \d\d:\d\d, listed as phishing at \d\d:\d\d`
			}
			sentence := regexp.MustCompile(want)
			testkit.Until(t, "the door, which follows the metric", func() bool { return len(w.told().Late) > 0 })
			report := w.told()
			if len(report.Late) != 1 || !sentence.MatchString(report.Late[0].String()) || report.Late[0].Devices != 1 || report.Late[0].List != "se-4b" {
				t.Fatalf("The door says %+v", report.Late)
			}
			text := report.Late[0].String()
			testkit.Until(t, "the line", func() bool { return strings.Contains(c.Output(), "Listed too late: "+text) })
			testkit.Until(t, "the page", func() bool { return strings.Contains(get(t, page), text) })
			if !names {
				testkit.WantNone(t, c.Output()+get(t, page)+get(t, page+"status.json"), "late.example.com")
			}
			testkit.Equal(t, "the name now", c.query("late.example.com."), dns.RcodeNameError)
			testkit.Equal(t, "lines", strings.Count(c.Output(), "Listed too late"), 1)
		})
	}
}

// secretNames returns which of some names the memory of a process has, in text or as they are on the wire: both have the label.
func secretNames(t *testing.T, pid int, label string) map[string]bool {
	t.Helper()
	maps := testkit.Read(t, fmt.Sprintf("/proc/%d/maps", pid))
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	testkit.Must(t, err)
	defer memory.Close()
	found, read, chunk := map[string]bool{}, 0, make([]byte, 1<<20)
	form := regexp.MustCompile(regexp.QuoteMeta(label) + `(\d{4})`)
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		from, to, _ := strings.Cut(fields[0], "-")
		first, _ := strconv.ParseInt(from, 16, 64)
		last, err := strconv.ParseInt(to, 16, 64)
		if err != nil || !strings.HasPrefix(fields[1], "rw") {
			continue
		}
		for at := first; at < last; at += int64(len(chunk) - 64) { // a name may be on both sides
			n, _ := memory.ReadAt(chunk[:min(int64(len(chunk)), last-at)], at)
			read += n
			for _, m := range form.FindAllSubmatch(chunk[:n], -1) {
				found[string(m[1])] = true
			}
		}
	}
	if read < 1<<20 {
		t.Fatalf("read %d bytes of memory", read)
	}
	return found
}

// Without log no name stays in memory. Go overwrites memory that nobody refers to any more (clobberfree), and
// other queries what is in buffers and on stacks; what is kept stays there. With log the names are found.
func TestLookBackKeepsNoNames(t *testing.T) {
	t.Parallel()
	for _, names := range []bool{true, false} {
		t.Run(fmt.Sprintf("names %v", names), func(t *testing.T) {
			t.Parallel()
			const secrets, others = 50, 200
			w := newWorld(t)
			c, _ := w.lookingBack(names, "limit off")
			label := fmt.Sprintf("kept%x-", rand.Uint64()) // it is not in the program
			for i := range secrets {
				c.query(fmt.Sprintf("%s%04d.secret.example.", label, i))
			}
			chaff := func() { // many at once: else the stacks of goroutines that have ended stay as they were
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						for range others / 20 {
							m := new(dns.Msg).SetQuestion(fmt.Sprintf("other%x.example.", rand.Uint64()), dns.TypeA)
							_, _, _ = (&dns.Client{Timeout: patience}).Exchange(m, c.address)
						}
					})
				}
				wg.Wait()
			}
			chaff()
			if names {
				testkit.Equal(t, "names in memory where they are logged", len(secretNames(t, c.Pid(), label)), secrets)
				return
			}
			left, end := secretNames(t, c.Pid(), label), time.Now().Add(20*time.Second) // some goes with the next update only
			for round := 0; len(left) > 0 && (round < 30 || time.Now().Before(end)); round++ {
				chaff()
				left = secretNames(t, c.Pid(), label)
			}
			testkit.Equal(t, "names in memory", left, map[string]bool{})
		})
	}
}
