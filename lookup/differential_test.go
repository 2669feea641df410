package lookup_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var (
	differentialNames = flag.Int("differential.names", 20_000, "how many names each differential test compares; a tenth of it with -short")
	differentialSeed  = flag.Uint64("differential.seed", 1, "where the differential tests begin")
)

// names returns how many names a differential test compares.
func names() int { return *differentialNames / map[bool]int{true: 10, false: 1}[testing.Short()] }

var (
	words = []string{"a", "b", "c", "www", "evil", "xn--bcher-kva", "_dmarc", "1", "0x7f", "010", "256", "127", "A-b", "EVIL", "example", "co", "com", "github", "%41", "%2", "%%34%31", "x%20y", "s3"}
	tails = []string{"com", "net", "co.uk", "uk", "github.io", "io", "ck", "www.ck", "kobe.jp", "city.kobe.jp", "amazonaws.com", "s3.amazonaws.com", "zz", "unlisted", "example.org", "local", "test", "home.arpa", "in-addr.arpa", "example", "1.2.3.4", "0x7f.1", "2130706433", "localhost", "onion", ""}
	odd   = []byte(". /?\\:@[]#%\x00\x1f\x7f\x80\xff\"();&=+-_~!")
)

// randomLabels returns the labels of a DNS name, of any bytes.
func randomLabels(r *rand.Rand) (labels []string) {
	for range r.IntN(8) {
		label := words[r.IntN(len(words))]
		switch r.IntN(40) {
		case 0:
			label += string([]byte{odd[r.IntN(len(odd))]})
		case 1:
			label = string([]byte{byte(r.Uint32())}) + label
		case 2:
			label = strings.Repeat(label, 20)
		}
		labels = append(labels, label[:min(len(label), 63)])
	}
	if tail := tails[r.IntN(len(tails))]; tail != "" {
		labels = append(labels, strings.Split(tail, ".")...)
	}
	return labels
}

// present writes labels in presentation form (RFC 1035 section 5.1).
func present(r *rand.Rand, labels []string) string {
	var text strings.Builder
	for _, label := range labels {
		for _, b := range []byte(label) {
			switch {
			case b <= ' ' || b >= 0x7f || r.IntN(200) == 0:
				fmt.Fprintf(&text, "\\%03d", b)
			case bytes.IndexByte([]byte(`.\"();@$`), b) >= 0:
				text.WriteString("\\" + string([]byte{b}))
			default:
				text.WriteByte(b)
			}
		}
		text.WriteByte('.')
	}
	if len(labels) == 0 {
		return "."
	}
	return text.String()
}

func TestExpressionsOfNamesAreThoseOfASecondImplementation(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*differentialSeed, 1))
	empty := 0
	total := names()
	for range total {
		labels := randomLabels(r)
		qname := present(r, labels)
		for _, rule := range []lookup.Rule{lookup.RuleV5, lookup.RuleV4} {
			var got []string
			h := lookup.FromQname(qname)
			if _, notAddress := netip.ParseAddr(h.String()); h.Public() || notAddress == nil { // Public leaves out private addresses
				got = h.ExpressionsBy(rule)
			}
			want := secondName(labels, rule)
			slices.Sort(got)
			if len(want) == 0 {
				empty++
			}
			if want = distinct(want); !slices.Equal(got, want) {
				t.Fatalf("rule %d, %s: got %q, the second implementation %q", rule, qname, got, want)
			}
		}
	}
	testkit.Between(t, "names without an expression, else the test tries too little", empty, 0, total)
}

func randomURL(r *rand.Rand) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	var text strings.Builder
	text.WriteString(pick("http://", "https://", "HTTP://", "ftp://"))
	if r.IntN(4) == 0 {
		text.WriteString(pick("user@", "user:secret@", "a%40b@", "a:%2f@", "@", "a@b@"))
	}
	if r.IntN(8) == 0 {
		text.WriteString(pick("[2001:0db8:0000::1]", "[::ffff:1.2.3.4]", "[64:ff9b::1.2.3.4]", "[2001:DB8:0:0:1:0:0:1]", "[::]", "[1:2:3:4:5:6:7:8]", "3279880203", "0x7f.1", "0300.0250.1", "1.2.3.4.", "256.1.1.1", "4294967296", "%31.2.3.4"))
	} else {
		for range 1 + r.IntN(7) {
			text.WriteString(pick("a", "b", "www", "GOOgle", "evil", "%61", "%25%36%31", "x_y", "-", "ho\tst", "host%23", "%2e") + pick(".", ".", ".", "..", "%2E"))
		}
		text.WriteString(pick("com", "co.uk", "github.io", "zz", "com.", "com..", "kobe.jp"))
	}
	text.WriteString(pick("", "", "", ":80", ":"))
	for range r.IntN(8) {
		text.WriteString(pick("/", "/", "/", "//", "/%2f", "/.", "/..", "/%2e%2e", "/\r\n") + pick("a", "b.html", "", "%25", "%20", "A~b", "%2525", "\x80", ";x=1", "%3Fq"))
	}
	if r.IntN(3) == 0 {
		text.WriteString("?" + pick("", "q=1", "q=/../x//y", "%23", "a?b", "u=http://c.com/", "q#frag"))
	}
	if r.IntN(6) == 0 {
		text.WriteString(pick("#", "#frag", "#a/b?c#d"))
	}
	return text.String()
}

func TestExpressionsOfURLsAreThoseOfASecondImplementation(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*differentialSeed, 2))
	none := 0
	total := names()
	for range total {
		text := randomURL(r)
		rule := lookup.Rule(r.IntN(2))
		var got []string
		u, err := lookup.ParseURL(text)
		if err == nil {
			for _, e := range u.Expressions(rule) {
				got = append(got, e.Text)
			}
		} else {
			none++
		}
		want, ok := secondURL(text, rule)
		slices.Sort(got)
		if want = distinct(want); ok != (err == nil) || !slices.Equal(got, want) {
			t.Fatalf("rule %d, %q: got %q (%v), the second implementation %q (%v)", rule, text, got, err, want, ok)
		}
	}
	testkit.Between(t, "URLs that are refused, else the test tries too little", none, 0, total/10)
}

// knowing is a server that looks for a prefix in all its threats, one after the other.
type knowing []lookup.ThreatHash

func (k knowing) Search(_ context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	answer := lookup.Answer{TTL: time.Hour}
	for _, t := range k {
		for _, p := range prefixes {
			if strings.HasPrefix(string(t.Hash[:]), string(p)) {
				t.TTL = time.Minute * 20
				answer.Threats = append(answer.Threats, t)
			}
		}
	}
	return answer, nil
}

// model is what a Checker must say, in the plainest words: every entry is compared with every hash.
type model struct {
	cfg    lookup.Config
	lists  []modelList
	server knowing
}

type modelList struct {
	entries    []string
	likelySafe bool
}

// verdict decides by the expressions of a name. threat is whether one of them is a threat, asked about or not.
func (m model) verdict(expressions []string) (verdict lookup.Verdict, threat bool) {
	likelySafe := false
	for _, l := range m.lists {
		// Fewer than 100 entries are no list that RealTime trusts.
		likelySafe = likelySafe || l.likelySafe && (len(l.entries) < 100 || l.holds(expressions...))
	}
	for _, e := range expressions {
		asked := m.cfg.Mode == lookup.NoStorage || m.cfg.Mode == lookup.RealTime && !likelySafe
		for _, l := range m.lists {
			asked = asked || !l.likelySafe && l.holds(e)
		}
		for _, t := range m.server {
			if t.Hash != lookup.HashExpression(e) || t.Threats&m.cfg.Threats == 0 {
				continue
			}
			if threat = true; asked {
				return lookup.Unsafe, true
			}
		}
	}
	return lookup.Safe, threat
}

func (l modelList) holds(expressions ...string) bool {
	return slices.ContainsFunc(expressions, func(e string) bool {
		hash := lookup.HashExpression(e)
		return slices.ContainsFunc(l.entries, func(entry string) bool { return strings.HasPrefix(string(hash[:]), entry) })
	})
}

// randomModel returns a model with lists, and a checker of the same.
func randomModel(t *testing.T, r *rand.Rand) (model, *lookup.Checker) {
	m := model{cfg: lookup.Config{
		Mode:     lookup.Mode(r.IntN(3)),
		Rule:     lookup.Rule(r.IntN(2)),
		Threats:  []lookup.Threats{lookup.AllThreats, lookup.Threats(0).With(lookup.Malware)}[r.IntN(2)],
		AsStored: r.IntN(2) == 0,
		Cache:    1 + r.IntN(200),
		Database: &lookup.Database{MaxFiltered: r.IntN(2) - 1}, PerSearch: 1 + r.IntN(lookup.MaxPrefixes),
	}}
	var lists []lookup.List
	for n := range 1 + r.IntN(4) {
		list := modelList{likelySafe: m.cfg.Mode == lookup.RealTime && n == 0}
		if list.likelySafe && r.IntN(4) > 0 {
			for i := range 99 + r.IntN(2) {
				hash := lookup.HashExpression(fmt.Sprint(r.Uint64(), i, ".example/"))
				list.entries = append(list.entries, string(hash[:]))
			}
		}
		for range r.IntN(20) * (1 - r.IntN(2)*r.IntN(2)) { // or none
			expressions := secondName(shortName(r), lookup.RuleV4)
			if len(expressions) == 0 {
				continue
			}
			hash := lookup.HashExpression(expressions[r.IntN(len(expressions))])
			width := 4
			if list.likelySafe {
				width = 32
			} else if r.IntN(4) == 0 {
				width += r.IntN(29)
			}
			if r.IntN(4) > 0 { // a threat may be in no list
				list.entries = append(list.entries, string(hash[:width]))
			}
			if r.IntN(2) == 0 {
				threats := lookup.Threats(0).With([]lookup.Threat{lookup.Malware, lookup.SocialEngineering}[r.IntN(2)])
				m.server = append(m.server, lookup.ThreatHash{Hash: hash, Threats: threats})
			}
		}
		m.lists = append(m.lists, list)
		lists = append(lists, lookup.List{Name: fmt.Sprint("list", n), LikelySafe: list.likelySafe, Set: setOf(t, list.entries)})
	}
	if m.cfg.Database.PublishApart(lists); r.IntN(2) == 0 {
		m.cfg.Database.Join()
	}
	m.cfg.Searcher = m.server
	c, err := lookup.NewChecker(m.cfg)
	testkit.Must(t, err)
	return m, c
}

func setOf(t *testing.T, entries []string) *prefixset.Set {
	entries = slices.Compact(slices.Sorted(slices.Values(entries)))
	b := prefixset.NewBuilder(len(entries))
	for _, e := range entries {
		testkit.Must(t, b.Add([]byte(e), len(e)))
	}
	return b.Set()
}

// shortName returns one of some thousand names, so that lists and queries meet.
func shortName(r *rand.Rand) []string {
	labels := []string{[]string{"com", "net", "zz"}[r.IntN(3)]}
	if r.IntN(3) == 0 {
		labels = []string{"co", "uk"}
	}
	for range r.IntN(6) {
		labels = append([]string{[]string{"a", "b", "C"}[r.IntN(3)]}, labels...)
	}
	return labels
}

func TestVerdictsAreThoseOfAnObviousModel(t *testing.T) {
	t.Parallel()
	const each = 100 // names asked of one checker, so that the cache answers too
	r := rand.New(rand.NewPCG(*differentialSeed, 3))
	verdicts := map[lookup.Verdict]int{}
	total := names()
	for done := 0; done < total && !t.Failed(); done += each {
		m, c := randomModel(t, r)
		for range each {
			labels := shortName(r)
			got, candidates := c.Check(lookup.FromQname(present(r, labels)))
			if candidates != nil {
				got = c.Confirm(candidates, nil).Wait(t.Context())
			}
			want, threat := m.verdict(secondName(labels, m.cfg.Rule))
			if threat && got.Verdict == lookup.Unsafe && got.By == lookup.ByCache { // another name was asked about
				want = lookup.Unsafe
			}
			if got.Verdict != want || got.Err != nil {
				t.Errorf("%q in mode %v, rule %d: got %+v, the model says %v", labels, m.cfg.Mode, m.cfg.Rule, got, want)
			}
			verdicts[want]++
		}
		c.Close()
	}
	if verdicts[lookup.Unsafe] < total/100 || verdicts[lookup.Safe] < total/100 {
		t.Errorf("the model says %v: the test tries too little", verdicts)
	}
}
