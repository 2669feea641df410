package lookup

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The sinks keep the compiler from leaving work out.
var (
	benchSum   [sha256.Size]byte
	benchFound bool
)

// benchSizes are how many random prefixes four lists hold together.
var benchSizes = []struct {
	name string
	n    int
}{{"10k", 10_000}, {"1M", 1_000_000}, {"4M", 4_000_000}, {"10M", 10_000_000}, {"16M", 16_000_000}}

// benchLists returns four lists of n random prefixes together. The largest has seven tenths of them.
func benchLists(n int) (lists []List) {
	for i, tenths := range []int{70, 15, 10, 5} {
		lists = append(lists, List{Name: string(rune('a' + i)), Set: randomSet(uint64(i), n/100*tenths)})
	}
	return lists
}

// randomSet returns a set of n random prefixes, each once.
func randomSet(seed uint64, n int) *prefixset.Set {
	r := rand.New(rand.NewPCG(seed, 1))
	prefixes := make([]uint32, n)
	for i := range prefixes {
		prefixes[i] = r.Uint32()
	}
	slices.Sort(prefixes)
	b := prefixset.NewBuilder(n)
	for _, p := range slices.Compact(prefixes) {
		if err := b.Add(binary.BigEndian.AppendUint32(nil, p), 4); err != nil {
			panic(err)
		}
	}
	return b.Set()
}

// benchHosts are 100,000 different hosts as in a resolver's log: two to six labels, most of them three.
var benchHosts = sync.OnceValue(func() []Host {
	r := rand.New(rand.NewPCG(15, 16))
	suffixes := []string{"com", "com", "com", "com", "net", "org", "io", "de", "fr", "co.uk", "com.br", "github.io"}
	services := []string{"www", "www", "api", "cdn", "static", "img", "mail", "login", "assets", "edge-03", "us-east-1", "p16-sign"}
	word := func(least, most int) string {
		w := make([]byte, least+r.IntN(most-least+1))
		for i := range w {
			w[i] = "abcdefghiklmnoprstuvwyz-0123456789eeaaiioonnrrttss"[r.IntN(50)]
		}
		w[0], w[len(w)-1] = 'a'+w[0]%26, 'a'+w[len(w)-1]%26
		return string(w)
	}
	var hosts []Host
	for seen := map[string]bool{}; len(hosts) < 100_000; {
		name := word(4, 14) + "." + suffixes[r.IntN(len(suffixes))] + "."
		for range []int{0, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(9)] {
			label := services[r.IntN(len(services))]
			if r.IntN(4) == 0 {
				label = word(6, 20)
			}
			name = label + "." + name
		}
		if !seen[name] {
			seen[name] = true
			hosts = append(hosts, FromQname(name))
		}
	}
	return hosts
})

// fiveExpressions returns a host of five expressions.
func fiveExpressions(i int) Host {
	return FromQname(fmt.Sprintf("static.img%d.eu-west.cdn.example.com.", i))
}

// eachBenchName runs a benchmark over the mixed hosts and over one host. It leaves out hosts that are not clean.
func eachBenchName(b *testing.B, clean func(Host) bool, run func(b *testing.B, hosts []Host)) {
	var hosts []Host
	for _, h := range benchHosts() {
		if clean(h) {
			hosts = append(hosts, h)
		}
	}
	one := 0
	for !clean(fiveExpressions(one)) {
		one++
	}
	b.Run("mixed", func(b *testing.B) { run(b, hosts) })
	b.Run("five-expressions", func(b *testing.B) { run(b, []Host{fiveExpressions(one)}) })
}

// BenchmarkCheckClean measures a query of a clean name, from the qname to the verdict.
func BenchmarkCheckClean(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			database := databaseOf(benchLists(size.n)...)
			c := checkerOf(b, Config{Database: database, Searcher: searchFunc(func(context.Context, []Prefix) (Answer, error) {
				return Answer{}, ErrBackoff
			})})
			clean := func(h Host) bool {
				decision, candidates := c.Check(h)
				return decision == Decision{By: ByList} && candidates == nil
			}
			eachBenchName(b, clean, func(b *testing.B, hosts []Host) {
				var qnames []string
				for _, h := range hosts {
					qnames = append(qnames, h.String()+".")
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					decision, _ := c.Check(FromQname(qnames[i]))
					benchFound = decision.Verdict != Safe
					if i++; i == len(qnames) {
						i = 0
					}
				}
			})
		})
	}
}

// BenchmarkSHA256Only hashes what BenchmarkCheckClean checks: no check by hash prefixes can be faster.
func BenchmarkSHA256Only(b *testing.B) {
	all := func(Host) bool { return true }
	eachBenchName(b, all, func(b *testing.B, hosts []Host) {
		expressions := make([][][]byte, len(hosts))
		for i, h := range hosts {
			for _, e := range h.Expressions() {
				expressions[i] = append(expressions[i], []byte(e))
			}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			for _, e := range expressions[i] {
				benchSum = sha256.Sum256(e)
			}
			if i++; i == len(hosts) {
				i = 0
			}
		}
	})
}
