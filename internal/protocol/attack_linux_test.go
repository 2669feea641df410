//go:build !race

package protocol

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The race detector takes memory of its own.

// attack is an answer that is small on the wire and large in memory, or takes long to read.
type attack struct {
	name        string
	contentType string
	status      int  // 0: 200
	plain       bool // not compressed
	asked       bool // the answer depends on the request
	body        answer
	ask         func(ctx context.Context, endpoint string) error
	most        int // MiB that the whole process may take at its peak with GOMEMLIMIT=64MiB
}

// What the whole process may take without GOMEMLIMIT, see test/README.md. One that does nothing takes
// 13 MiB, and what is freed is given back late.
const mostOfLists, mostOfSearch = 13 + 150, 13 + 30

var attacks = []attack{
	{name: "nothing at all", ask: searchNames(1), body: nothing, most: 48},
	{name: "v5 search: 100,000 full hashes for each prefix, 100 names", ask: searchNames(100), asked: true, body: hashesFor(100_000), most: 64},
	{name: "v5 search: 2,900 full hashes for each prefix, 1,000 names", ask: searchNames(1000), asked: true, plain: true, body: hashesFor(2900), most: 64},
	{name: "v5 search: 256 full hashes for each prefix, 8,000 names", ask: searchNames(8000), asked: true, plain: true, body: hashesFor(256), most: 64},
	{name: "v5 search: empty full hashes", ask: searchNames(20), body: repeated("\x0a\x00", 4<<20), most: 64},
	{name: "v5 search: empty details", ask: searchNames(20), body: inField("\x12\x00", 4<<20, 1), most: 64},
	{name: "v5 search: attributes", ask: searchNames(20), body: inField("\x02", 4<<20, 2, 2, 1), most: 64},
	{name: "v5 search, JSON: empty full hashes", contentType: jsonForm, ask: searchNames(20), body: listed(`{"fullHashes":[`, `{}`, `]}`, 4<<20), most: 64},
	{name: "v5 search, JSON: empty details", contentType: jsonForm, ask: searchNames(20), body: listed(`{"fullHashes":[{"fullHashDetails":[`, `{}`, `]}]}`, 4<<20), most: 64},
	{name: "v5 search, JSON: attributes", contentType: jsonForm, ask: searchNames(20), body: listed(`{"fullHashes":[{"fullHashDetails":[{"attributes":[`, `"CANARY"`, `]}]}]}`, 4<<20), most: 64},
	{name: "v5 search, JSON: unknown attributes", contentType: jsonForm, ask: searchNames(20), body: listed(`{"fullHashes":[{"fullHashDetails":[{"attributes":[`, `"A"`, `]}]}]}`, 4<<20), most: 64},
	{name: "v5 lists: empty lists", ask: fetchV5, body: repeated("\x0a\x00", 127<<20), most: 64},
	{name: "v5 lists: additions again and again", ask: fetchV5, body: manyAdditions, most: 64},
	{name: "v5 lists: removals of 120 MB", ask: fetchV5, body: removals(120 << 20), most: 64},
	{name: "v5 lists: removals of 120 MB, not compressed", plain: true, ask: fetchV5, body: removals(120 << 20), most: 128},
	{name: "v5 lists: removals of 16 MB, not compressed", plain: true, ask: fetchV5, body: removals(16_000_000), most: 128},
	{name: "v5 lists: threat types of a list", ask: fetchV5, body: manyThreatTypes, most: 64},
	{name: "v5 lists: 16 million entries that are next to each other", ask: fetchV5, body: neighbours, most: 64},
	{name: "v5 lists, JSON: empty lists", contentType: jsonForm, ask: fetchV5, body: listed(`{"hashLists":[`, `{}`, `]}`, 127<<20), most: 64},
	{name: "v5 lists, JSON: 90 MB of additions", contentType: jsonForm, ask: fetchV5, body: inJSON(`{"hashLists":[{`, `}]}`, 120<<20), most: 64},
	{name: "v5 lists, JSON: 32 MB of additions", contentType: jsonForm, plain: true, ask: fetchV5, body: inJSON(`{"hashLists":[{`, `}]}`, 32_000_000), most: 192},
	{name: "v5 lists, JSON: 120 MB, not compressed", contentType: jsonForm, plain: true, ask: fetchV5, body: inJSON(`{"hashLists":[{`, `}]}`, 120_000_000), most: 192},
	{name: "v5 list of lists: empty lists on each page", ask: listLists, body: pages, most: 64},
	{name: "v5 list of lists: long descriptions on each page", ask: listLists, body: longPages, most: 64},
	{name: "Web Risk search: empty threats", ask: searchRisk, body: repeated("\x0a\x00", 4<<20), most: 64},
	{name: "Web Risk search: threat types", ask: searchRisk, body: inField("\x02", 4<<20, 1, 1), most: 64},
	{name: "Web Risk search, JSON: empty threats", contentType: jsonForm, ask: searchRisk, body: listed(`{"threats":[`, `{}`, `]}`, 4<<20), most: 64},
	{name: "Web Risk list: 100 million raw removals", ask: fetchRiskList, body: riskRemovals(100_000_000), most: 64},
	{name: "Web Risk list: a million raw removals, not compressed", plain: true, ask: fetchRiskList, body: riskRemovals(1_000_000), most: 64},
	{name: "Web Risk list: 10 million empty sets", ask: fetchRiskList, body: inField("\x0a\x00", 20<<20, 5), most: 64},
	{name: "Web Risk list: additions of 120 MB, not compressed", plain: true, ask: fetchRiskList, body: riskSets(1, 120_000_000), most: 192},
	{name: "Web Risk list: additions of 32 MB in 32 sets, not compressed", plain: true, ask: fetchRiskList, body: riskSets(32, 32_000_000), most: 192},
	{name: "Web Risk list: 16 million entries in Rice coding", plain: true, ask: fetchRiskList, body: riskNeighbours(6_000_000), most: 192},
	{name: "Web Risk list, JSON: 32 MB of additions", contentType: jsonForm, plain: true, ask: fetchRiskList, body: listed(`{"responseType":"RESET","newVersionToken":"Ag==","additions":{"riceHashes":{"riceParameter":3,"entryCount":8,"encodedData":"`, zeros, `"}}}`, 32_000_000), most: 192},
	{name: "the text of an error", status: 503, contentType: jsonForm, ask: fetchV5, body: listed(`{"error":{"message":"`, strings.Repeat("x", 1000), `"}}`, 127<<20), most: 64},
	{name: "v5 list: empty fields", ask: fetchOne, body: repeated("\x12\x00", 127<<20), most: 64},
	{name: "v5 list: 32 MB of additions in JSON", contentType: jsonForm, plain: true, ask: fetchOne, body: inJSON(`{`, `}`, 32_000_000), most: 192},
}

// What is made of a list in a batch is made of one that is asked for by itself, too.
func init() {
	for _, a := range slices.Clone(attacks) {
		if of := a.body; strings.HasPrefix(a.name, "v5 lists: ") && a.name != "v5 lists: empty lists" {
			a.name, a.ask = strings.Replace(a.name, "lists", "list", 1), fetchOne
			a.body = func(r *http.Request) []byte {
				_, _, tag := protowire.ConsumeTag(of(r))
				list, _ := protowire.ConsumeBytes(of(r)[tag:])
				return list
			}
			attacks = append(attacks, a)
		}
	}
}

var attackAll = flag.Bool("attack.all", false, "try each attack, and not only some")

// The whole process of a client that is attacked takes no more than stated, and
// seconds. The child process does what a name server would do with the answer.
func TestNoAnswerTakesMuchMemoryOrTime(t *testing.T) {
	if name := os.Getenv("ATTACK"); name != "" {
		beAttacked(t, name)
		return
	}
	testkit.Long(t)
	for i, a := range attacks {
		if !*attackAll && i%16 != 0 {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			wire, server := a.serve(t)
			free := mostOfLists
			if strings.Contains(a.name, " search") {
				free = mostOfSearch
			}
			for limit, most := range map[string]int{"64MiB": a.most, "off": free} {
				if limit == "off" && !*attackAll && i%32 != 0 {
					continue
				}
				var kib int
				for range 3 { // on a busy machine the collector may come late, by chance: what an answer needs is the least
					if kib = a.peak(t, server, limit, wire); kib <= most<<10 {
						break
					}
				}
				testkit.Between(t, "GOMEMLIMIT="+limit+": KiB that the process took", kib, 0, most<<10)
			}
		})
	}
}

// peak attacks a process and returns what it took at most, in KiB.
func (a attack) peak(t *testing.T, server, limit string, wire *atomic.Int64) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestNoAnswerTakesMuchMemoryOrTime$")
	child.Env = append(os.Environ(), "ATTACK="+a.name, "ENDPOINT="+server, "GOMAXPROCS=2", "GOGC=100", "GOMEMLIMIT="+limit)
	out, err := child.CombinedOutput()
	peak := regexp.MustCompile(`peak (\d+) KiB`).FindSubmatch(out)
	if err != nil || peak == nil {
		t.Fatalf("the child process ends with %v: %s", err, out)
	}
	t.Logf("GOMEMLIMIT=%s: %d kB on the wire; %s", limit, wire.Swap(0)/1000, bytes.TrimSpace(regexp.MustCompile(`(?m)^outcome.*$`).Find(out)))
	kib, _ := strconv.Atoi(string(peak[1]))
	return kib
}

// beAttacked prints what an attack does to this process. More than a minute is a failure: the parent ends it.
func beAttacked(t *testing.T, name string) {
	for _, a := range attacks {
		if a.name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begun := time.Now()
		err := a.ask(ctx, os.Getenv("ENDPOINT"))
		text := []rune(fmt.Sprint(err))
		peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(testkit.Read(t, "/proc/self/status"))
		fmt.Printf("outcome: peak %s KiB after %.1f s: %s\n", peak[1], time.Since(begun).Seconds(), string(text[:min(len(text), 160)]))
		testkit.Between(t, "time, with a context of 20 seconds", time.Since(begun), 0, 30*time.Second)
	}
}

// serve answers every request with the attack, compressed unless it is plain, and counts the bytes that it sends.
func (a attack) serve(t *testing.T) (wire *atomic.Int64, endpoint string) {
	wire = new(atomic.Int64)
	coded := func(r *http.Request) []byte {
		if a.plain {
			return a.body(r)
		}
		return zipped(a.body(r))
	}
	var same []byte
	if !a.asked {
		same = coded(nil)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := same
		if a.asked {
			body = coded(r)
		}
		w.Header().Set("Content-Type", cmp.Or(a.contentType, binaryForm))
		if !a.plain {
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.WriteHeader(max(a.status, 200))
		n, _ := w.Write(body)
		wire.Add(int64(n))
	}))
	t.Cleanup(server.Close)
	return wire, server.URL
}

// searchNames confirms that many names of different prefixes, as the plugin would.
func searchNames(n int) func(context.Context, string) error {
	return func(ctx context.Context, endpoint string) (err error) {
		c, err := NewV5(Config{Endpoint: endpoint, UserAgent: "test/1"})
		if err != nil {
			return err
		}
		checker, err := lookup.NewChecker(lookup.Config{Mode: lookup.NoStorage, Database: new(lookup.Database), Searcher: c})
		if err != nil {
			return err
		}
		defer runtime.KeepAlive(checker)
		for i := range n {
			_, candidates := checker.Check(lookup.FromQname(fmt.Sprintf("h%d.example.", i)))
			if candidates == nil {
				continue // answered from the cache
			}
			if d := checker.Confirm(candidates, nil).Wait(ctx); d.Err != nil {
				err = d.Err
			}
		}
		return err
	}
}

// by asks with a client of a dialect.
func by(d *Dialect, ask func(context.Context, Client) error) func(context.Context, string) error {
	return func(ctx context.Context, endpoint string) error {
		c, err := d.NewClient(Config{Endpoint: endpoint, UserAgent: "test/1"}, []string{"se-4b"}, func() [][]byte { return nil })
		if err != nil {
			return err
		}
		return ask(ctx, c)
	}
}

// byFetch fetches se-4b, and others.
func byFetch(d *Dialect, others ...string) func(context.Context, string) error {
	return by(d, func(ctx context.Context, c Client) error { return fetchAndApply(ctx, c, others...) })
}

func bySearch(d *Dialect) func(context.Context, string) error {
	return by(d, func(ctx context.Context, c Client) (err error) {
		for range 20 {
			_, err = c.Search(ctx, []lookup.Prefix{"abcd"})
		}
		return err
	})
}

func byLists(d *Dialect) func(context.Context, string) error {
	return by(d, func(ctx context.Context, c Client) error {
		all, err := c.Lists(ctx)
		runtime.KeepAlive(all)
		return err
	})
}

var (
	fetchV5       = byFetch(DialectV5, "mw-4b") // a batch
	fetchOne      = byFetch(DialectV5)          // hashList.get, whose answer is the message of one list
	listLists     = byLists(DialectV5)
	fetchRiskList = byFetch(DialectWebRisk)
	searchRisk    = bySearch(DialectWebRisk)
)

// fetchAndApply does to an answer about se-4b, and others, what the updater does. A list of 2,000 entries is held.
func fetchAndApply(ctx context.Context, c Client, others ...string) (err error) {
	b := prefixset.NewBuilder(2000)
	for i := range 2000 {
		if err := b.Add(binary.BigEndian.AppendUint32(nil, uint32(i)<<16), 4); err != nil {
			return err
		}
	}
	old := updater.List{Name: "se-4b", Version: []byte{1}, Set: b.Set()}
	var applied error
	wanted := []updater.Want{{List: "se-4b", Version: []byte{1}}}
	for _, name := range others {
		wanted = append(wanted, updater.Want{List: name, Version: []byte{1}})
	}
	_, err = c.Fetch(ctx, wanted, func(_ int, u *updater.Update) {
		_, _, applied = updater.Apply(old, u, 1<<24)
	})
	if err == nil {
		err = applied
	}
	return err
}

// answer makes the answer of an attack to a request. It is made in the process of the server only.
type answer func(*http.Request) []byte

func nothing(*http.Request) []byte { return nil }

// repeated is a text again and again, up to size bytes.
func repeated(text string, size int) answer { return listed("", text, "", size) }

// listed is a text again and again between a head and a tail, in JSON with commas unless it is in a string.
func listed(head, text, tail string, size int) answer {
	each := text
	if head != "" && !strings.HasSuffix(head, `"`) {
		each += ","
	}
	return func(*http.Request) []byte {
		n := (size - len(head) - len(tail) - len(text)) / len(each)
		return slices.Concat([]byte(head), bytes.Repeat([]byte(each), n), []byte(text), []byte(tail))
	}
}

// inField is a text again and again in a field in a field, and so on, the innermost number first.
func inField(text string, size int, numbers ...protowire.Number) answer {
	return func(*http.Request) []byte { return nested(bytes.Repeat([]byte(text), size/len(text)-8), numbers...) }
}

// nested is value in a field in a field, and so on, the innermost number first.
func nested(value []byte, numbers ...protowire.Number) []byte {
	for _, number := range numbers {
		value = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	return value
}

// hashesFor has n full hashes behind each prefix that was asked for, and a life.
func hashesFor(n int) answer {
	return func(r *http.Request) (all []byte) {
		for _, p := range r.URL.Query()["hashPrefixes"] {
			prefix, _ := base64.URLEncoding.DecodeString(p)
			hash := slices.Concat([]byte("\x0a\x26\x0a\x20"), prefix, make([]byte, 28), []byte{0x12, 2, 8, 1})
			all = append(all, bytes.Repeat(hash, n)...)
		}
		return append(all, 0x12, 3, 8, 0xac, 2)
	}
}

// listOf is a batch of an update of se-4b with more fields.
func listOf(more ...[]byte) []byte {
	return nested(append([]byte("\x0a\x05se-4b\x12\x01\x02"), slices.Concat(more...)...), 1)
}

// partial is the field that says that an update is one.
var partial = []byte{0x18, 1}

func manyAdditions(*http.Request) []byte {
	return listOf(partial, bytes.Repeat(nested(make([]byte, 9_997), 4, 4), 9_900))
}

func removals(n int) answer {
	return func(*http.Request) []byte {
		return listOf(partial, nested(append([]byte{0x10, 3, 0x18, 10}, nested(make([]byte, n), 4)...), 5))
	}
}

func manyThreatTypes(*http.Request) []byte { return listOf(nested(make([]byte, 120<<20), 1, 8)) }

// neighbours are 16 million entries, each one more than the entry before.
func neighbours(*http.Request) []byte {
	const entries = 1<<24 - 2
	head := protowire.AppendVarint([]byte{0x10, 3, 0x18}, entries)
	return listOf(nested(append(head, nested(bytes.Repeat([]byte{0x22}, entries/2), 4)...), 4)) // a difference of one, twice
}

func pages(*http.Request) []byte {
	return append(bytes.Repeat([]byte("\x0a\x00"), 2<<20-50), "\x12\x01x"...)
}

func longPages(*http.Request) []byte {
	return append(nested(bytes.Repeat([]byte("x"), 4<<20-100), 4, 8, 1), "\x12\x01x"...)
}

// zeros are 900 bytes of zeros in base64.
var zeros = strings.Repeat("A", 1200)

// inJSON is a list with additions of n bytes, between what else an answer has.
func inJSON(head, tail string, n int) answer {
	return listed(head+`"name":"se-4b","version":"Ag==","additionsFourBytes":{"riceParameter":3,"entriesCount":8,"encodedData":"`, zeros, `"}`+tail, n)
}

// risk is an answer of this kind of Web Risk, which has a version.
func risk(kind byte, field []byte) []byte { return append([]byte{0x20, kind, 0x3a, 1, 'v'}, field...) }

func riskRemovals(n int) answer {
	return func(*http.Request) []byte { return risk(1, nested(make([]byte, n), 1, 1, 6)) }
}

// rawSet is set i of n sets of raw hashes, whose size bytes of entries are to be merged one by one.
func rawSet(i, n, size int) []byte {
	entries := size / 4 / n
	hashes := make([]byte, 0, 4*entries)
	for j := range entries {
		hashes = binary.BigEndian.AppendUint32(hashes, uint32(j*n+i))
	}
	return append([]byte{8, 4}, nested(hashes, 2)...)
}

func riskSets(n, size int) answer {
	return func(*http.Request) []byte {
		var sets []byte
		for i := range n {
			sets = append(sets, nested(rawSet(i, n, size), 1)...)
		}
		return risk(2, nested(sets, 5))
	}
}

// riskNeighbours are entries in size bytes, as many as there can be: each is one more than that before.
func riskNeighbours(size int) answer {
	return func(*http.Request) []byte {
		data := bytes.Repeat([]byte{0x92, 0x24, 0x49}, size/3) // with parameter 2 a difference of one is 0 1 0, lowest bit first
		head := protowire.AppendVarint([]byte{0x10, 2, 0x18}, uint64(len(data)*8/3))
		return risk(2, nested(append(head, nested(data, 4)...), 2, 5))
	}
}
