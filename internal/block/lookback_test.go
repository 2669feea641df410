package block

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// lookingBack returns a block with a memory, which asks nobody.
func lookingBack(t *testing.T, alter func(*config.Config)) *Block {
	c := config.Config{Online: true, Block: config.Block{Zones: []string{"."}, LookBack: time.Hour}}
	c.Lists = "se-4b"
	alter(&c)
	b := New(c)
	t.Cleanup(b.LookBack())
	return b
}

func TestAReloadThatChangesNothingKeepsWhatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := testkit.Capture(t)
		first := lookingBack(t, func(*config.Config) {})
		for _, tc := range []struct {
			what  string
			alter func(*config.Config)
			same  bool
		}{
			{"an answer", func(c *config.Config) { c.TTL = time.Minute }, true},
			{"a raised budget, which confirms what passed", func(c *config.Config) {
				c.Budget, c.Share, c.Cache, c.Resolvers = 400, 50, 1000, "9.9.9.9:53"
			}, true},
			{"settings of the same service", func(c *config.Config) {
				c.DB, c.KeyFile, c.Lists, c.Mode, c.CA = "/other", "/key", "mw-4b se-4b", lookup.RealTime, "pem"
			}, true},
			{"the duration", func(c *config.Config) { c.LookBack = 2 * time.Hour }, false},
			{"the service", func(c *config.Config) { c.Endpoint = "https://relay.example" }, false},
		} {
			testkit.Equal(t, tc.what+" changes, the memory stays", lookingBack(t, tc.alter).memory == first.memory, tc.same)
		}
		testkit.Equal(t, "lines about another memory", len(lines.About("Look-back for . starts with nothing")), 2)
		logged := lookingBack(t, func(c *config.Config) { c.LogBlocked = true })
		testkit.Equal(t, "names without log", first.memory.names, nil)
		testkit.Equal(t, "names are kept with log", logged.memory.names != nil, true)
		for _, alter := range []func(*config.Config){func(c *config.Config) { c.LookBack = 0 }, func(c *config.Config) { c.Online = false }} {
			testkit.Equal(t, "look-back is on without look_back, or without a service", lookingBack(t, alter).LooksBack(), false)
		}
	})
	testkit.Equal(t, "memories that are left", len(process.memories.all), 0)
}

func TestLateNamesAreToldWithNamesOrDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hash := lookup.HashExpression("evil.example/")
		late := func(b *Block, client, name string) lookup.Late {
			h, addr := lookup.FromQname(name+"."), netip.MustParseAddr(client)
			p, added := b.memory.passed.Note(process.devices.clients.keyOf(addr.AsSlice()), h, lookup.RuleV5)
			testkit.Equal(t, name+" is new", added, true)
			b.memory.names.add(p, addr, h, time.Now())
			return lookup.Late{Pair: p, Client: uint32(addr.As4()[3]), Asked: time.Now(), Hash: hash, List: "se-4b", Threat: lookup.SocialEngineering}
		}
		for _, names := range []bool{false, true} {
			b := lookingBack(t, func(c *config.Config) { c.LogBlocked = names })
			all := []lookup.Late{late(b, "192.0.2.1", "evil.example"), late(b, "192.0.2.1", "www.evil.example")}
			var got []string
			for _, l := range b.lateOf(append(all, late(b, "192.0.2.2", "evil.example")), b.memory, time.Now()) {
				got = append(got, fmt.Sprintf("%d %s %s %s", l.Devices, l.Client, l.Name, l.Threat))
			}
			want := map[bool][]string{false: {"2   phishing"}, true: {"1 192.0.2.1 evil.example phishing", "1 192.0.2.2 evil.example phishing"}}
			testkit.Equal(t, fmt.Sprint("names ", names), got, want[names])
			if names { // the bits of a record were the same by chance: a name that is known tells
				harmless := []lookup.Late{late(b, "192.0.2.3", "harmless.example")}
				testkit.Equal(t, "names with another hash", len(b.lateOf(harmless, b.memory, time.Now())), 0)
			}
		}
	})
}

// With views two blocks have the same zones and one memory. One looks back for both, not by its own exceptions or names alone.
func TestOneBlockTellsForAllThatShareItsMemory(t *testing.T) {
	alone(t)
	synctest.Test(t, func(t *testing.T) {
		children := lookingBack(t, func(c *config.Config) { c.LogBlocked = true })
		adults := lookingBack(t, func(c *config.Config) {
			c.LogBlocked, c.StatusNames = true, true
			c.Own = []config.OwnFile{{Path: testkit.Write(t, t.TempDir(), "allow.txt", "evil.example\n"), Allow: true}}
		})
		testkit.Must(t, adults.ReadOwn())
		t.Cleanup(adults.End)
		h, client := lookup.FromQname("evil.example."), netip.MustParseAddr("192.0.2.1")
		p, _ := children.memory.passed.Note(1, h, lookup.RuleV5)
		children.memory.names.add(p, client, h, time.Now())
		late := []lookup.Late{{Pair: p, Client: 1, Asked: time.Now(), Hash: lookup.HashExpression("evil.example/"), List: "se-4b", Threat: lookup.SocialEngineering}}
		testkit.Equal(t, "a name that the only block allows", len(adults.lateOf(late, adults.memory, time.Now())), 0)
		process.blocks = []*Block{children, adults}
		for _, b := range process.blocks {
			got := b.lateOf(late, b.memory, time.Now())
			hidden := slices.DeleteFunc(slices.Clone(got), func(l status.Late) bool { return l.Named })
			testkit.Equal(t, "names, and those that the page does not show", []int{len(got), len(hidden)}, []int{1, 1})
		}
		process.blocks = nil
	})
}

func TestWhatIsOldIsForgottenThoughNothingIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := lookingBack(t, func(c *config.Config) { c.LookBack = 10 * time.Minute })
		b.memory.passed.Note(1, lookup.FromQname("safe.example."), lookup.RuleV5)
		testkit.Equal(t, "records", b.memory.passed.Len(), 1)
		time.Sleep(20 * time.Minute)
		testkit.Equal(t, "records that are old", b.memory.passed.Len(), 0)
	})
}

// In a pause nothing is sent about a name. What was asked for before is told after it.
func TestLookBackSendsNothingInAPause(t *testing.T) {
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		b := lookingBack(t, func(*config.Config) {})
		b.memory.passed.Note(1, lookup.FromQname("late.example."), lookup.RuleV5)
		paused := new(pauseFolder)
		paused.active.Store(&[]Pause{{Zone: AllBlocks, From: time.Now(), Until: time.Now().Add(10 * time.Minute)}})
		b.pauses.Store(paused)
		b.Use(engine.ServiceForTests(checkerOf(t, threats{[]string{"late.example"}}, "late.example")))
		time.Sleep(9 * time.Minute)
		testkit.Equal(t, "late names in a pause", len(lines.About("Listed too late")), 0)
		time.Sleep(2 * time.Minute)
		lines.Only(t, "Listed too late: 1 device asked")
	})
}

// The door says who asked for a name. A page must not: others may look at it.
func TestTheDoorSaysWhoAskedForAName(t *testing.T) {
	alone(t)
	for _, names := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := lookingBack(t, func(c *config.Config) { c.LogBlocked = names })
			process.blocks = []*Block{b, lookingBack(t, func(c *config.Config) { c.LogBlocked, c.TTL = names, time.Minute })}
			asked := func(name string) *status.Asked {
				w, err := process.WhyName(t.Context(), name, false)
				if err != nil || w.Asked == nil {
					t.Fatalf("%s: who asked is not told: %+v, %v", name, w, err)
				}
				return w.Asked
			}
			for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
				from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 53))
				b.Asked(process.devices.clients.keyOf(from.IP.To4()), from, lookup.FromQname("www.example.org."))
				time.Sleep(time.Minute)
			}
			got := asked("www.example.org")
			told := strings.Contains(got.String(), "(192.0.2.1, 192.0.2.2)")
			testkit.Equal(t, "devices, minutes, names", []any{got.Devices, got.Latest.Sub(got.First), told}, []any{2, time.Minute, names})
			got = asked("fine.example.org")
			testkit.Equal(t, "devices", got.Devices, 0)
			testkit.WantStart(t, got.String(), "No device got it lately")
			w := page{process}.Why(lookup.FromQname("www.example.org."))
			testkit.Equal(t, "what a page says", w.Asked, nil)
			process.blocks = nil
		})
	}
}

// A reload that takes the word names away takes the names off the page, though they are kept for up to a day.
func TestAPageShowsNoNameOfBeforeAReloadWithoutNames(t *testing.T) {
	alone(t)
	testkit.Capture(t)
	block := func(names bool) *Block {
		return New(config.Config{Block: config.Block{Zones: []string{"."}, LogBlocked: true, StatusNames: names}})
	}
	b := block(true)
	b.Blocked(question("evil.example."), "", "192.0.2.1", phished, time.Now())
	b.tellLate([]status.Late{{Name: "late.example", Client: "192.0.2.1", Devices: 1, Asked: time.Now(), Listed: time.Now(), Zones: ".", Named: true}})
	b.Heard(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1)}, SignOf("dns.google."))
	for _, names := range []bool{true, false} {
		process.blocks = []*Block{block(names)}
		why, r := page{process}.Why(lookup.FromQname("evil.example.")), page{process}.Report()
		shown := []bool{why.Last != nil, len(r.Names) == 1, r.Late[0].Name+r.Late[0].Client == "late.example192.0.2.1", len(r.Devices.Told) == 1}
		testkit.Equal(t, "when a name was blocked, names, late ones and devices are on the page", shown, slices.Repeat([]bool{names}, 4))
	}
	quiet := block(true)
	quiet.Config.LogBlocked = false // a reload has taken log away
	process.blocks = []*Block{quiet}
	r, why := process.Report(), process.Why(t.Context(), lookup.FromQname("evil.example."), false)
	who := r.Names[0].Client + r.Late[0].Client + r.Late[0].Name + why.Last.Client
	testkit.Equal(t, "who asked, without log, and the name", []string{who, r.Names[0].Name}, []string{"", "evil.example"})
}

func TestNamesAreKeptForAsLongAsPairs(t *testing.T) {
	now := time.Now()
	a := newAskedNames(4)
	for i, p := range []lookup.Pair{0, 1, 2, 4, 4, 3, 5, 6} { // 4 is forgotten, and asked for again: it is one of the last names
		a.add(p, netip.Addr{}, lookup.FromQname(fmt.Sprintf("n%d.example.", p)), now.Add(time.Duration(i)*time.Minute))
	}
	kept := func() (all []lookup.Pair) {
		for p := range lookup.Pair(7) {
			if _, ok := a.of(p); ok {
				all = append(all, p)
			}
		}
		return all
	}
	testkit.Equal(t, "pairs", kept(), []lookup.Pair{3, 4, 5, 6})
	a.forget(now.Add(5 * time.Minute))
	testkit.Equal(t, "pairs that are left", kept(), []lookup.Pair{3, 5, 6})
}

func TestAMemoryIsSmallWhereThereIsLittle(t *testing.T) {
	for usable, want := range map[int64]int{0: 4 << 20, 1 << 20: 64 << 10, 64 << 20: 1 << 20, 8 << 30: 4 << 20} {
		testkit.Equal(t, fmt.Sprintf("of %d", usable), rememberedBytes(usable), want)
	}
}

func TestLinesAboutLateNamesAreFew(t *testing.T) {
	for _, json := range []bool{false, true} {
		lines := testkit.Capture(t)
		b := New(config.Config{Block: config.Block{Zones: []string{"."}, LogJSON: json}})
		var all []status.Late
		for i := range 30 {
			all = append(all, status.Late{Name: fmt.Sprintf("n%d.example", i), Client: "192.0.2.1", Devices: 1, Asked: time.Now(), Listed: time.Now(), List: "se-4b", Threat: "phishing"})
		}
		b.tellLate(all)
		about := "Listed too late: 192.0.2.1 asked for "
		if json {
			about = `"event":"listed_late","name":"n`
		}
		testkit.Equal(t, "lines about late names", len(lines.About(about)), mostLines)
		lines.Only(t, "Listed too late: 10 names more")
	}
}

var phished = lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByServer, Threat: lookup.SocialEngineering, List: "se-4b"}

func question(name string) dns.Question {
	return dns.Question{Name: name, Qtype: dns.TypeA, Qclass: dns.ClassINET}
}

func TestAFamiliarNameThatIsBlockedIsLoudOnceADay(t *testing.T) {
	lines := testkit.Capture(t)
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
	testkit.Equal(t, "lines about names that are not familiar", len(lines.About("times an hour")), 0)
	for range 3 {
		l.blocked(question("www.familiar.example."), phished, now)
	}
	testkit.WantParts(t, lines.Only(t, "times an hour"), "[WARNING] plugin/safebrowsing: www.familiar.example is blocked now "+
		"(suspected social engineering, list se-4b), and was asked for about ", "safebrowsing allow -for 1d www.familiar.example")
	l.blocked(question("wWw.FAMILIAR.eXample."), phished, now) // 0x20
	testkit.Equal(t, "lines whatever the case", len(lines.About("times an hour")), 1)
	l.familiar.add(lookup.FromQname("www.familiar.example."), 1000)
	l.blocked(question("www.familiar.example."), phished, now.Add(24*time.Hour))
	testkit.Equal(t, "lines until the next day", len(lines.About("www.familiar.example is blocked now")), 2)
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
		lines := testkit.Capture(t)
		l := &loudness{familiar: newFamiliarity(time.Now())}
		l.familiar.add(lookup.FromQname(name+"."), 10000)
		l.blocked(question(name+"."), phished, time.Now().Add(time.Hour))
		testkit.WantParts(t, lines.Only(t, "times an hour"), "If this is a mistake: "+want+"\n")
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
		testkit.Equal(t, fmt.Sprintf("after %v", tt.after), f.perHour(h, begin.Add(tt.after)), tt.want)
	}
	f = newFamiliarity(begin)
	for i := range 2000 { // other names: each could share one counter
		f.add(lookup.FromQname(fmt.Sprintf("n%d.example.", i)), 100)
	}
	// (1-exp(-2000/8192))² = 4.7 %
	testkit.Between(t, "names of 1000 that are taken for familiar ones", f.taken(begin, 1), 0, 150)
}

// taken returns how many of 1000 names that nobody has asked for have this rate or more.
func (f *familiarity) taken(now time.Time, rate int) (n int) {
	for i := range 1000 {
		if f.perHour(lookup.FromQname(fmt.Sprintf("m%d.example.", i)), now) >= rate {
			n++
		}
	}
	return n
}

// On a busy server each counter has much of other names.
func TestManyQueriesMakeNoNameFamiliar(t *testing.T) {
	begin := time.Now()
	f := newFamiliarity(begin)
	for i := range 200_000 { // a sample of 890 queries a second for an hour
		f.add(lookup.FromQname(fmt.Sprintf("n%d.example.", i)), 1)
	}
	f.add(lookup.FromQname("www.familiar.example."), 1000)
	now := begin.Add(time.Hour)
	testkit.Between(t, "names of 1000 that are taken for familiar ones", f.taken(now, familiarRate), 0, 10)
	testkit.Between(t, "queries an hour", f.perHour(lookup.FromQname("www.familiar.example."), now), 14_000, 18_000)
}
