package lookup

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"sync"
	"testing"
)

// The sinks keep the compiler from leaving work out.
var (
	benchSum   [sha256.Size]byte
	benchFound bool
)

// benchLists are four lists of a million random prefixes each.
var benchLists = sync.OnceValue(func() []List {
	var lists []List
	for i, name := range []string{"a", "b", "c", "d"} {
		lists = append(lists, List{Name: name, Set: setOfNumbers(randomPrefixes(uint64(i), 1_000_000))})
	}
	return lists
})

// fourLabel is a name of a usual kind, in none of benchLists.
const fourLabel = "static.cdn.example.com."

// cleanNames are names like those of a resolver's log, in none of benchLists:
// two to six labels, most of them three.
var cleanNames = sync.OnceValue(func() []string {
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
	var names []string
	for len(names) < 4096 {
		name := word(4, 14) + "." + suffixes[r.IntN(len(suffixes))] + "."
		for range []int{0, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(9)] {
			label := services[r.IntN(len(services))]
			if r.IntN(4) == 0 {
				label = word(6, 20)
			}
			name = label + "." + name
		}
		if isClean(FromQname(name)) {
			names = append(names, name)
		}
	}
	return names
})

// isClean reports whether no suffix that Check looks at is in a list.
func isClean(h Host) bool {
	for _, start := range h.suffixStarts(nil, RuleV5) {
		hash := HashExpression(h.name[start:] + "/")
		if match(benchLists(), &hash, false) != nil {
			return false
		}
	}
	return true
}

// eachBenchName runs a benchmark over the mixed names and over one name.
func eachBenchName(b *testing.B, run func(b *testing.B, hosts []Host)) {
	var hosts []Host
	for _, name := range cleanNames() {
		hosts = append(hosts, FromQname(name))
	}
	b.Run("mixed", func(b *testing.B) { run(b, hosts) })
	b.Run("four-label", func(b *testing.B) { run(b, []Host{FromQname(fourLabel)}) })
}

func benchChecker(b *testing.B) *Checker {
	b.Helper()
	database := new(Database)
	database.Publish(benchLists())
	return checkerOf(b, Config{Database: database, Searcher: searchFunc(func(context.Context, []Prefix) (Answer, error) {
		return Answer{}, ErrBackoff
	})})
}

// BenchmarkCheckClean is what every query of a clean name costs.
func BenchmarkCheckClean(b *testing.B) {
	c := benchChecker(b)
	eachBenchName(b, func(b *testing.B, hosts []Host) {
		for _, h := range hosts {
			if decision, candidates := c.Check(h); decision != (Decision{By: ByList}) || candidates != nil {
				b.Fatalf("%s is not clean: %+v", h, decision)
			}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			decision, _ := c.Check(hosts[i])
			benchFound = decision.Verdict != Safe
			if i++; i == len(hosts) {
				i = 0
			}
		}
	})
}

// BenchmarkCheckCleanQname is the same from the name as it is asked.
func BenchmarkCheckCleanQname(b *testing.B) {
	c := benchChecker(b)
	names := cleanNames()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		decision, _ := c.Check(FromQname(names[i]))
		benchFound = decision.Verdict != Safe
		if i++; i == len(names) {
			i = 0
		}
	}
}

// BenchmarkSHA256Only hashes exactly the expressions of the names that
// BenchmarkCheckClean checks: what no check by hash prefixes can go without.
func BenchmarkSHA256Only(b *testing.B) {
	eachBenchName(b, func(b *testing.B, hosts []Host) {
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
