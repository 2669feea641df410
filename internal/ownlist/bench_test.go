package ownlist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

const million = 1_000_000

// generated returns a list of distinct names like those of common lists.
func generated(lines int, format string) []byte {
	r := rand.New(rand.NewPCG(20, 26))
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, format, fmt.Sprintf("%x.host-%d.example.com", r.Uint32(), i))
		text.WriteByte('\n')
	}
	return text.Bytes()
}

var benchFormats = map[string]string{
	"domain":  "%s",
	"hosts":   "0.0.0.0 %s",
	"adblock": "||%s^",
	"rpz":     "%s CNAME .",
	"nodata":  "%s CNAME *.",
	"url":     "http://%s/",
	"idn":     "bücher.%s",
}

// BenchmarkLoad prints the time per line and the memory per name: the bytes of the
// content and the growth of the heap.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"domain", "hosts", "adblock", "rpz", "nodata", "url", "idn"} {
		b.Run(name, func(b *testing.B) {
			text := generated(million, benchFormats[name])
			var c *content
			before := heap()
			for b.Loop() {
				var err error
				c, err = read(bytes.NewReader(text), Config{}, 0)
				if err != nil || c.summary.Entries != million || c.summary.Bad.Count != 0 {
					b.Fatalf("%+v, %v", c.summary, err)
				}
			}
			grown := heap() - before
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/million, "ns/line")
			b.ReportMetric(float64(c.bytes())/million, "B/name")
			b.ReportMetric(float64(grown)/million, "heapB/name")
			runtime.KeepAlive(c)
			runtime.KeepAlive(text)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAMillionNamesFit(t *testing.T) {
	testkit.Long(t)
	for _, lines := range []int{100, 1000, 70_000, million} {
		c, err := read(bytes.NewReader(generated(lines, "%s")), Config{}, 0)
		must(t, err)
		if perName := float64(c.bytes()) / float64(lines); perName > 10 {
			t.Errorf("%d names take %.2f bytes each", lines, perName)
		}
		if c.summary.Entries != lines {
			t.Errorf("%d entries of %d lines", c.summary.Entries, lines)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	c, err := read(bytes.NewReader(generated(million, "||%s^")), Config{}, 0)
	must(b, err)
	f := Hosts("block", nil)
	f.content.Store(c)
	g := Hosts("Corefile", []HostEntry{{Host: host(b, "allowed.example.com"), Until: then.AddDate(1, 0, 0)}})
	for name, files := range map[string][]*File{"one": {f}, "two": {f, g}} {
		b.Run(name, func(b *testing.B) {
			hosts := make([]lookup.Host, 1<<12)
			for i := range hosts {
				hosts[i] = lookup.FromQname(fmt.Sprintf("www.clean-%d.example.com.", i))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := Best(files, hosts[i%len(hosts)], then); ok {
					b.Fatal("a clean name is listed")
				}
				i++
			}
		})
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	f, _ := listOf(t, "||example.com^\nwww.example.net\n192.0.2.1\nx.example # until 2030-01-01", true)
	g, _ := listOf(t, "||example.com^\n*.example.org", false)
	files := []*File{f, g}
	for _, qname := range []string{"www.example.com.", "a.b.c.d.e.f.example.org.", "www.example.net.", "clean.example.", "x.example.", "single."} {
		h := lookup.FromQname(qname)
		if n := testing.AllocsPerRun(100, func() { Best(files, h, then) }); n != 0 {
			t.Errorf("%s: %v allocations", qname, n)
		}
	}
}
