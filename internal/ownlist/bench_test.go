package ownlist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

const million = 1_000_000

// generated returns a list of distinct names as in common lists.
func generated(lines int, format string) []byte {
	r := rand.New(rand.NewPCG(20, 26))
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, format, fmt.Sprintf("%x.host-%d.example.com", r.Uint32(), i))
		text.WriteByte('\n')
	}
	return text.Bytes()
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
	files := []*File{f, g, Hosts("Corefile", []HostEntry{{Host: host(t, "example.org")}})}
	for _, qname := range []string{"www.example.com.", "a.b.c.d.e.f.example.org.", "www.example.net.", "clean.example.", "x.example.", "single."} {
		h := lookup.FromQname(qname)
		if n := testing.AllocsPerRun(100, func() { Best(files, h, then) }); n != 0 {
			t.Errorf("%s: %v allocations", qname, n)
		}
	}
}
