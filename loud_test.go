package safebrowsing

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var phished = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.SocialEngineering, List: "se-4b"}

func question(name string) dns.Question {
	return dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}
}

func TestAFamiliarNameThatIsBlockedIsLoudOnceADay(t *testing.T) {
	lines := logtest.Capture(t)
	now := time.Now()
	l := &loudness{familiar: newFamiliarity(now)}
	for range 3000 { // 1000 an hour in 3 hours; a sample of 190 is off by a fifth at most
		l.familiar.count(lookup.FromQname("WWW.familiar.example."))
	}
	for range 20 { // far from the 180 that make it familiar
		l.familiar.count(lookup.FromQname("www.rare.example."))
	}
	now = now.Add(3 * time.Hour)
	own := phished
	own.By = lookup.ByBlock
	l.blocked(question("www.familiar.example."), own, now)
	l.blocked(question("www.rare.example."), phished, now)
	l.blocked(question("www.new.example."), phished, now)
	if got := lines.About("times an hour"); len(got) != 0 {
		t.Errorf("Expected no line yet, got %q", got)
	}
	for range 3 {
		l.blocked(question("www.familiar.example."), phished, now)
	}
	got := lines.About("[WARNING] plugin/safebrowsing: www.familiar.example is blocked now (suspected social engineering, list se-4b), and was asked for about ")
	if len(got) != 1 || !strings.Contains(got[0], "safebrowsing allow -for 1d www.familiar.example") {
		t.Errorf("Expected one line, got %q", got)
	}
	l.blocked(question("wWw.FAMILIAR.eXample."), phished, now) // 0x20
	if got := lines.About("times an hour"); len(got) != 1 {
		t.Errorf("Expected one line whatever the case, got %q", got)
	}
	l.familiar.add(lookup.FromQname("www.familiar.example."), 1000)
	l.blocked(question("www.familiar.example."), phished, now.Add(24*time.Hour))
	if got := lines.About("www.familiar.example is blocked now"); len(got) != 2 {
		t.Errorf("Expected another line the next day, got %q", got)
	}
}

// An operator may copy the command into a shell.
func TestTheLineAboutAFamiliarNameHasNoCommandsOfAClient(t *testing.T) {
	for name, want := range map[string]string{
		"www.familiar.example":      "safebrowsing allow -for 1d www.familiar.example",
		"_dmarc.Familiar-1.example": "safebrowsing allow -for 1d _dmarc.Familiar-1.example",
		"$`reboot`.example":         "add the host to a file of allow",
		"|reboot|x.example":         "add the host to a file of allow",
		"x>y.example":               "add the host to a file of allow",
		"-list.example":             "add the host to a file of allow",
	} {
		lines := logtest.Capture(t)
		l := &loudness{familiar: newFamiliarity(time.Now())}
		l.familiar.add(lookup.FromQname(name+"."), 10000)
		l.blocked(question(name+"."), phished, time.Now().Add(time.Hour))
		if got := lines.About("times an hour"); len(got) != 1 || !strings.Contains(got[0], "If this is a mistake: "+want+"\n") {
			t.Errorf("%s: expected %q, got %q", name, want, got)
		}
	}
}

func TestFamiliarityIsAMeanOfAboutADay(t *testing.T) {
	begin := time.Now()
	f := newFamiliarity(begin)
	h := lookup.FromQname("www.example.com.")
	f.add(h, 100)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 1600}, {2 * time.Hour, 800}, {16 * time.Hour, 100}, {32 * time.Hour, 50}, {33 * time.Hour, 47}, {-time.Hour, 800}} {
		if got := f.perHour(h, begin.Add(tt.after)); got != tt.want {
			t.Errorf("after %v: %d an hour, want %d", tt.after, got, tt.want)
		}
	}
	f = newFamiliarity(begin)
	for i := range 2000 { // other names, each of which could share one counter
		f.add(lookup.FromQname(fmt.Sprintf("n%d.example.", i)), 100)
	}
	shared := 0
	for i := range 1000 {
		if f.perHour(lookup.FromQname(fmt.Sprintf("m%d.example.", i)), begin) > 0 {
			shared++
		}
	}
	if shared > 150 { // (1-exp(-2000/8192))² = 4.7 %
		t.Errorf("%d of 1000 names are taken for familiar ones", shared)
	}
}

// rates gives a rate these counts, one in each interval, and returns it in the last one.
func rates(begin time.Time, counts ...int) (r blockRate) {
	for i, n := range counts {
		r = r.at(begin.Add(time.Duration(i) * rateInterval))
		for range n {
			r = r.blocked(begin.Add(time.Duration(i)*rateInterval + time.Minute))
		}
	}
	return r
}

func TestAJumpOfTheBlockingRate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		counts []int
		want   bool
	}{
		{"nothing", []int{0}, false},
		{"just started", []int{0, 0, 0, 0, 0, 500}, false},
		{"from nothing", []int{0, 0, 0, 0, 0, 0, 100}, true},
		{"few", []int{0, 0, 0, 0, 0, 0, 99}, false},
		{"five times the mean", []int{100, 100, 100, 100, 100, 100, 500}, false},
		{"more", []int{100, 100, 100, 100, 100, 100, 501}, true},
		{"a rate that varies", []int{0, 600, 0, 0, 600, 0, 900}, false},
		{"it goes on", []int{0, 0, 0, 0, 0, 0, 1000, 900}, true},
		{"it is over", []int{0, 0, 0, 0, 0, 0, 1000, 0, 0}, false},
	} {
		if got := rates(time.Now(), tt.counts...).jumped; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	r := rates(time.Now(), 0, 0, 0, 0, 0, 0, 10)
	if got := r.at(r.begin.AddDate(10, 0, 0)); got.jumped || got.count != 0 || got.mean != 0 {
		t.Errorf("ten years later: %+v", got)
	}
	if got := r.blocked(r.begin.AddDate(-10, 0, 0)); got.jumped || got.count != 11 {
		t.Errorf("a clock that was set back: %+v", got)
	}
}

func TestAJumpIsLoudAndItsEndToo(t *testing.T) {
	lines := logtest.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		l := &loudness{familiar: newFamiliarity(time.Now())}
		jump := func(n int) {
			for i := range n {
				l.blocked(question(fmt.Sprintf("n%d.example.", i)), phished, time.Now())
			}
		}
		jump(1)
		time.Sleep(2 * time.Hour)
		jump(300)
		if got := lines.About("[WARNING] plugin/safebrowsing: Blocking has jumped: 100 answers in 10m0s, and a mean of 0.1 in the day before; the last name was n99.example"); len(got) != 1 {
			t.Errorf("Expected one WARNING, got %q", lines.About("jump"))
		}
		time.Sleep(rateInterval + time.Minute)
		jump(200)
		time.Sleep(rateInterval)
		synctest.Wait()
		if got := lines.About("is over"); len(got) != 0 {
			t.Errorf("Expected it to go on, got %q", got)
		}
		time.Sleep(3 * rateInterval)
		synctest.Wait()
		if got := lines.About("[INFO] plugin/safebrowsing: The jump of blocking is over: 0 answers in 10m0s"); len(got) != 1 {
			t.Errorf("Expected one INFO, got %q", lines.About("jump"))
		}
		jump(1) // of the next one
	})
	if got := lines.About("has jumped"); len(got) != 1 {
		t.Errorf("Expected one WARNING in all, got %q", got)
	}
}

func BenchmarkFamiliarity(b *testing.B) {
	f := newFamiliarity(time.Now())
	h := lookup.FromQname("www.static.example.com.")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f.count(h)
		}
	})
}
