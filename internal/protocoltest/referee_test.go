package protocoltest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// recorder collects violations instead of failing the test.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.texts
	r.texts = nil
	return taken
}

// bench is a server in a bubble with two lists and hand-made requests.
type bench struct {
	*testing.T
	*Server
	violations recorder
	version    []byte // of the last list answer that was read
}

// inBubble runs f in a bubble of its own.
func inBubble(t *testing.T, name string, f func(b *bench)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{T: t}
			b.Server = New(&b.violations)
			b.Publish("se-4b", [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}})
			b.Publish("mw-4b", [][]byte{{9, 9, 9, 9}})
			b.SetMinimumWait("se-4b", time.Hour)
			b.SetMinimumWait("mw-4b", time.Hour)
			f(b)
		})
	})
}

// The entries of the bench's lists and one more of se-4b.
const (
	entryA = "\x01\x02\x03\x04"
	entryB = "\x05\x06\x07\x08"
	entryM = "\x09\x09\x09\x09"
	entryL = "\x01\x02\x03\x04\x05\x06" // begins with entryA
)

// want checks that one violation was reported since the last look, and that it names a rule. "": none.
func (b *bench) want(rule string) {
	b.Helper()
	got := b.violations.take()
	if text := strings.Join(got, ""); len(got) != min(1, len(rule)) || !strings.Contains(text, rule) || strings.Contains(text, secret) {
		b.Errorf("violations %q, want one that names %q, or none, without the key", got, rule)
	}
}

// act is what a client does, and the rule that it breaks thereby, "": none.
type act struct {
	name string
	do   func(b *bench)
	rule string
}

// judged runs acts, each in a bubble of its own, and checks what the referee says.
func judged(t *testing.T, bubble func(*testing.T, string, func(*bench)), acts ...act) {
	for _, a := range acts {
		bubble(t, a.name, func(b *bench) { a.do(b); b.want(a.rule) })
	}
}

// changed is a request that is changed before it is sent, the rule that it breaks, "": none, and the status of its answer, 0: any.
type changed[R any] struct {
	name   string
	change func(R)
	rule   string
	status int
}

// judgedChanged sends changed requests, each in a bubble of its own, and checks what the referee says, without the key.
func judgedChanged[R any](t *testing.T, bubble func(*testing.T, string, func(*bench)), send func(b *bench, change func(R)), rows ...changed[R]) {
	for _, row := range rows {
		bubble(t, row.name, func(b *bench) {
			send(b, row.change)
			b.want(row.rule)
			all := b.Requests("")
			got := all[len(all)-1].Status
			testkit.Equal(b, "status", got, cmp.Or(row.status, got))
		})
	}
}

// notBefore checks that an act is reported one nanosecond before the wait is over and
// not when it is over. Setup brings the client there.
func notBefore(t *testing.T, name, rule string, wait time.Duration, setup, do func(b *bench)) {
	for part, early := range map[string]time.Duration{"early": 1, "in time": 0} {
		inBubble(t, name+", "+part, func(b *bench) {
			setup(b)
			b.want("")
			time.Sleep(wait - early)
			do(b)
			b.want(rule[:len(rule)*int(early)])
		})
	}
}

// meanwhile begins an act whose answer takes a minute more than a fault says. The returned function waits for its end.
func (b *bench) meanwhile(method string, f Fault, do func(b *bench)) (end func()) {
	f.Delay = time.Minute
	b.Break(method, 1, f)
	done := make(chan struct{})
	go func() { defer close(done); do(&bench{T: b.T, Server: b.Server}) }()
	synctest.Wait()
	return func() { <-done }
}

// tenFailures are ten failures in a row, each when the back-off of the one before is over.
func (b *bench) tenFailures(method string, ask func(b *bench)) {
	b.Break(method, 10, Fault{CloseConnection: true})
	for n := range 10 {
		ask(b)
		if n < 9 {
			time.Sleep(min(15*time.Minute<<n, 24*time.Hour))
		}
	}
}

func base64URL(b []byte) string { return base64.URLEncoding.EncodeToString(b) }

// polite returns a request that breaks no rule of form.
func polite(t testing.TB, path string, values url.Values) *http.Request {
	t.Helper()
	query := url.Values{"alt": {"proto"}}
	maps.Copy(query, values)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://sb.test"+path+"?"+query.Encode(), nil)
	testkit.Must(t, err)
	r.Header.Set("User-Agent", "reference/1")
	return r
}

// read sends a request and parses the answer into m.
func read(client http.RoundTripper, r *http.Request, m proto.Message) error {
	resp, err := client.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if form := resp.Header.Get("Content-Type"); err == nil && (!strings.HasPrefix(form, "application/x-protobuf") || len(b) == 1<<20) {
		err = fmt.Errorf("%d bytes of %s", len(b), form)
	}
	if err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// lists fetches lists with these versions; the answer may be bad.
func (b *bench) lists(versions [][]byte, names ...string) {
	query := url.Values{"names": names}
	for _, v := range versions {
		query.Add("version", base64URL(v))
	}
	var m sbv5.BatchGetHashListsResponse
	if read(b, polite(b.T, "/v5/hashLists:batchGet", query), &m) == nil && len(m.HashLists) > 0 {
		b.version = m.HashLists[0].Version
	}
}

// search asks for prefixes; a bad answer is an error.
func (b *bench) search(prefixes ...string) error {
	query := url.Values{}
	for _, p := range prefixes {
		query.Add("hashPrefixes", base64URL([]byte(p)))
	}
	var m sbv5.SearchHashesResponse
	if err := read(b, polite(b.T, "/v5/hashes:search", query), &m); err != nil {
		return err
	}
	for _, h := range m.FullHashes {
		if len(h.FullHash) != 32 {
			return fmt.Errorf("full hash of %d bytes", len(h.FullHash))
		}
	}
	return nil
}

func se(b *bench) { b.lists(nil, "se-4b") }
func mw(b *bench) { b.lists(nil, "mw-4b") }

// cut fetches two lists. The answer breaks off in the second one.
func cut(b *bench) {
	b.Publish("mw-4b", [][]byte{{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}, {4, 4, 4, 4}, {5, 5, 5, 5}, {6, 6, 6, 6}})
	b.Break("", 1, Fault{CutBody: true})
	b.lists(nil, "se-4b", "mw-4b")
}

func TestRefereeReportsRequestsTooEarly(t *testing.T) {
	notBefore(t, "minimum wait", "minimum wait", time.Hour, se, se)
	notBefore(t, "one failure", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{Status: 503}); se(b) }, mw)
	notBefore(t, "a bad frame", "back-off", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{WrongName: true}); se(b) }, se)
	notBefore(t, "ten failures", "back-off", 24*time.Hour, func(b *bench) { b.tenFailures("", se) }, se)
	const broken = "minimum wait in an answer that failed"
	notBefore(t, "bad content with a minimum wait", broken, time.Hour, func(b *bench) { b.Break("", 1, Fault{WrongChecksum: true}); se(b) }, se)
	notBefore(t, "bad content with a bad minimum wait", "back-off of one list", 15*time.Minute, func(b *bench) { b.Break("", 1, Fault{NegativeWait: true}); se(b) }, se)
	notBefore(t, "the list before the break", broken, time.Hour, cut, se)
	notBefore(t, "Retry-After", "back-off", time.Hour, func(b *bench) { b.Break("", 1, Fault{Status: 503, RetryAfter: time.Hour}); se(b) }, mw)
	notBefore(t, "Retry-After of one list", "back-off of one list", time.Hour, func(b *bench) { b.Break("", 1, Fault{Status: 404, RetryAfter: time.Hour}); se(b); mw(b) }, se)
	notBefore(t, "Retry-After of years", "back-off", 24*time.Hour, func(b *bench) { b.Break("", 1, Fault{Status: 429, RetryAfter: 1 << 55}); se(b) }, se)
	notBefore(t, "bad content twice", "back-off of one list", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		b.Break("batchGet", 2, Fault{WrongChecksum: true, List: "se-4b"})
		se(b)
		time.Sleep(15 * time.Minute)
		se(b)
		mw(b)
	}, se)
	notBefore(t, "no change, no wait", ourFloor+", no minimum wait and no change", 30*time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		se(b)
		b.lists([][]byte{b.version}, "se-4b")
	}, se)
	notBefore(t, "time-out", "back-off", 15*time.Minute, (*bench).timeOut, se)
	notBefore(t, "at once too often", ourFloor+", no minimum wait", time.Minute, func(b *bench) {
		b.SetMinimumWait("se-4b", 0)
		for range 33 {
			b.ForgetVersions("se-4b")
			se(b)
		}
	}, se)
}

// timeOut makes a list request that runs out of time.
func (b *bench) timeOut() {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	b.slow(ctx)
}

// slow makes a list request that takes an hour, or until its context ends.
func (b *bench) slow(ctx context.Context) {
	b.Break("batchGet", 1, Fault{Delay: time.Hour})
	_, err := b.RoundTrip(polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}}).WithContext(ctx))
	testkit.WantError(b, err)
}

func TestRefereeForgivesCancellation(t *testing.T) {
	inBubble(t, "cancelled context", func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(time.Second, cancel)
		b.slow(ctx)
		se(b)
		b.want("")
		got := b.Requests("batchGet")[0]
		testkit.Equal(b, "it is noted as cancelled, and as failed", [2]bool{got.Cancelled, got.Failed}, [2]bool{true, false})
	})
	inBubble(t, "told afterwards", func(b *bench) { b.timeOut(); b.ClientCancelled(); se(b); b.want("") })
	inBubble(t, "cancelled while reading", func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		resp, err := b.RoundTrip(polite(b.T, "/v5/hashLists:batchGet", url.Values{"names": {"se-4b"}}).WithContext(ctx))
		testkit.Must(b, err)
		cancel()
		_, err = io.ReadAll(resp.Body)
		testkit.Is(b, "the answer", err, context.Canceled)
		se(b)
		b.want("")
	})
}

func TestRefereeForgetsWhatTheClientLost(t *testing.T) {
	judged(t, inBubble,
		act{"wiped disk", func(b *bench) { se(b); b.Break("", 1, Fault{Status: 500}); mw(b); b.ClientLostState(); se(b) }, ""},
		act{"restart with an older version", func(b *bench) {
			se(b)
			old := b.version
			b.Publish("se-4b", nil)
			time.Sleep(time.Hour)
			b.lists([][]byte{old}, "se-4b")
			b.ClientStarted()
			time.Sleep(time.Hour)
			b.lists([][]byte{old}, "se-4b")
			b.want("")
			time.Sleep(time.Hour)
			b.lists([][]byte{old}, "se-4b")
		}, "want the newest"}) // the restart excuses one answer
}

func TestRefereeReportsParallelListRequests(t *testing.T) {
	judged(t, inBubble, act{"a success after a failure", func(b *bench) {
		end := b.meanwhile("batchGet", Fault{}, se)
		b.Break("batchGet", 1, Fault{Status: 500})
		mw(b)
		end()
		mw(b) // the success ends the back-off
	}, ""})
}

func TestRefereeReportsWrongVersions(t *testing.T) {
	ask := func(list string, versions func(b *bench) [][]byte) func(b *bench) {
		return func(b *bench) { b.lists(versions(b), list) }
	}
	newest := func(b *bench) [][]byte { return [][]byte{b.version} }
	twice := func(b *bench, version []byte) {
		b.lists([][]byte{version}, "se-4b")
		time.Sleep(time.Hour)
		b.lists([][]byte{version}, "se-4b")
	}
	judged(t, func(t *testing.T, name string, f func(b *bench)) {
		inBubble(t, name, func(b *bench) { se(b); time.Sleep(time.Hour); f(b) })
	},
		act{"old", func(b *bench) { b.Publish("se-4b", nil); twice(b, b.version) }, "want the newest"},
		act{"unknown", ask("se-4b", func(*bench) [][]byte { return [][]byte{{1, 2, 3}} }), "never served"},
		act{"of another list", ask("mw-4b", newest), "was sent for"},
		act{"twice", ask("se-4b", func(b *bench) [][]byte { return [][]byte{b.version, b.version} }), "more than one version"},
		act{"after bad content", func(b *bench) { b.Break("batchGet", 1, Fault{Duplicate: true}); twice(b, b.version) }, "last update was bad"},
		act{"of a bad answer", func(b *bench) {
			b.Break("batchGet", 1, Fault{WrongChecksum: true})
			b.Publish("se-4b", nil)
			b.lists([][]byte{b.version}, "se-4b")
			time.Sleep(time.Hour)
			b.lists([][]byte{b.version}, "se-4b")
		}, "had to be refused"},
		act{"name twice", func(b *bench) { b.lists(nil, "mw-4b", "mw-4b", "mw-4b") }, "more than once"})
}

// One of several servers takes the versions of the others, and of nobody else.
func TestOneOfManyTakesTheVersionsOfTheOthers(t *testing.T) {
	other := New(t)
	other.Publish("se-4b", [][]byte{[]byte("abcd")})
	ask := func(version []byte) func(b *bench) {
		return func(b *bench) {
			b.OneOfMany()
			b.Server.lists = map[string]*list{} // the first version made is the same one
			b.Publish("se-4b", [][]byte{[]byte("abcd")})
			b.lists([][]byte{version}, "se-4b")
		}
	}
	judged(t, inBubble, act{"of another server", ask(other.list("se-4b").newest().id), ""})
}

// A batch that is refused says nothing of its lists: the back-off is for all of them, and afterwards each is asked for
// by itself. A list that is refused by itself has a back-off of its own.
func TestRefereeTakesARefusedListByItself(t *testing.T) {
	refuse := func(b *bench, status int, names ...string) {
		b.SetMinimumWait("se-4b", time.Second)
		b.SetMinimumWait("mw-4b", time.Second)
		b.Break("update", 1, Fault{Status: status})
		b.lists(nil, names...)
	}
	notBefore(t, "a batch", "back-off", 15*time.Minute, func(b *bench) { refuse(b, 400, "se-4b", "mw-4b") }, mw)
	judged(t, inBubble,
		act{"the batch again", func(b *bench) {
			refuse(b, 404, "se-4b", "mw-4b")
			time.Sleep(time.Hour)
			se(b)
			time.Sleep(time.Second)
			b.want("")
			b.lists(nil, "se-4b", "mw-4b")
		}, "unknown lists"})
}

func TestOnlyWhatARestartForgetsIsExcused(t *testing.T) {
	const restarted, wiped = "the client was restarted", "the client was restarted and keeps nothing on disk"
	for violation, want := range map[string]string{
		"protocoltest: Local List Mode, cache: 1 hash prefix asked for again":             restarted,
		"protocoltest: Request Frequency: lists fetched while another fetch is under way": wiped,
		"protocoltest: Request Frequency, minimum wait: list \"se-4b\" asked for":         wiped,
		"protocoltest: Web Risk, caching: 1 hash prefix asked for again":                  restarted,
		"protocoltest: budget of searches: search 3 of a day that has 2":                  wiped,
		"protocoltest: API key: the URL of the request search holds the key":              "",
		"protocoltest: Local Database, version: the version 00 was never served":          "",
	} {
		testkit.Equal(t, violation, Excuse(violation), want)
	}
}

func TestRefereeReportsPrefixesAskedAgain(t *testing.T) {
	ask := func(b *bench) { _ = b.search("aaaa", "bbbb") }
	again := func(b *bench) { _ = b.search("cccc", "bbbb") }
	notBefore(t, "fresh", "fresh", 300*time.Second, ask, again)
	judged(t, inBubble,
		act{"restarted", func(b *bench) { ask(b); b.ClientStarted(); again(b) }, ""},
		act{"after failures", func(b *bench) {
			for _, f := range SearchFaults() {
				if f.Delay > 0 {
					continue // a good answer in the end
				}
				b.Break("search", 1, f)
				testkit.WantError(b, b.search("aaaa"))
			}
			b.want("")
			testkit.Is(b, "after the failures", b.search("aaaa"), nil)
		}, ""},
		act{"under way", func(b *bench) {
			end := b.meanwhile("search", Fault{}, ask)
			_ = b.search("dddd")
			b.want("")
			again(b)
			end()
		}, "under way"})
}

func TestRefereeReportsBadPrefixes(t *testing.T) {
	asking := func(prefixes ...string) func(b *bench) { return func(b *bench) { _ = b.search(prefixes...) } }
	judged(t, inBubble,
		act{"a thousand", asking(numbered(1000)...), ""},
		act{"too many", asking(numbered(1001)...), "at most 1000"},
		act{"none", asking(), "no hash prefix"},
		act{"three bytes", asking("aaaa", "bbb"), "do not have 4 bytes"},
		act{"duplicate", asking("aaaa", "bbbb", "aaaa"), "duplicates"})
}

func TestRefereeJudgesSearchBackoffOnRequest(t *testing.T) {
	ask := func(b *bench) { _ = b.search("aaaa") }
	breaks := func(b *bench, times int, f Fault) {
		b.JudgeSearchBackoff(true)
		b.Break("search", times, f)
		for range times {
			ask(b)
		}
	}
	fail := func(b *bench, status, times int) { breaks(b, times, Fault{Status: status}) }
	const rule = "back-off of searches"
	notBefore(t, "429", rule, 15*time.Minute, func(b *bench) { fail(b, 429, 1) }, ask)
	notBefore(t, "403 twice", rule, 30*time.Minute, func(b *bench) { fail(b, 403, 1); time.Sleep(15 * time.Minute); fail(b, 403, 1) }, ask)
	days := func(status int) func(b *bench) {
		return func(b *bench) { breaks(b, 1, Fault{Status: status, RetryAfter: 1 << 50}) }
	}
	notBefore(t, "Retry-After of days", rule, 24*time.Hour, days(429), ask)
	notBefore(t, "Retry-After of a server that is down", rule, 30*time.Minute, days(503), ask)
	notBefore(t, "three strikes", rule, 5*time.Minute, func(b *bench) { fail(b, 500, 3) }, ask)
	notBefore(t, "four times three strikes", rule, 30*time.Minute, func(b *bench) {
		for _, pause := range []time.Duration{5, 10, 20, 0} {
			fail(b, 503, 3)
			time.Sleep(pause * time.Minute)
		}
	}, ask)
	judged(t, inBubble,
		act{"two strikes", func(b *bench) { fail(b, 500, 2); ask(b); _ = b.search("bbbb") }, ""},
		act{"not judged", func(b *bench) { fail(b, 429, 1); b.JudgeSearchBackoff(false); ask(b) }, ""})
}

// numbered returns n different prefixes.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, string(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	return all
}

// secret is the key, or the token, of the tests in this file.
const secret = "secret key/1"

// sent is a request as it was sent, with an answer.
func (b *bench) sent(r *http.Request) {
	b.Helper()
	resp, err := b.RoundTrip(r)
	testkit.Must(b, err)
	resp.Body.Close()
}

func unchanged(*http.Request) {}

// adding adds parameters to a request.
func adding(query string) func(r *http.Request) {
	return func(r *http.Request) { r.URL.RawQuery += "&" + query }
}

// with sets a header of a request.
func with(name, value string) func(r *http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestRefereeReportsImpoliteRequests(t *testing.T) {
	send := func(b *bench, change func(*http.Request)) {
		b.SetKey(secret)
		r := polite(b.T, "/v5/hashes:search", url.Values{"hashPrefixes": {"YWFhYQ=="}})
		r.Header.Set("X-Goog-Api-Key", secret)
		change(r)
		b.sent(r)
	}
	judgedChanged(t, inBubble, send, []changed[*http.Request]{
		{"key as parameter", adding("key=" + url.QueryEscape(secret)), "parameter key", 0},
		{"body", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("x")) }, "body", 0},
		{"cookie", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "a", Value: "b"}) }, "cookies", 0},
		{"no User-Agent", func(r *http.Request) { r.Header.Del("User-Agent") }, "User-Agent", 0},
		{"Go's User-Agent", with("User-Agent", "Go-http-client/2.0"), "User-Agent", 0},
		{"no alt", func(r *http.Request) { r.URL.RawQuery = "hashPrefixes=YWFhYQ" }, "alt=proto", 0},
		{"redirect followed", with("Referer", "https://sb.test/"), "redirect", 0},
		{"clear-text search", func(r *http.Request) { r.URL.Path = "/v5/urls:search" }, "clear text", 0},
		{"not base64", func(r *http.Request) { r.URL.RawQuery = "alt=proto&hashPrefixes=++/%2BAA==" }, "not base64", 0},
	}...)
	inBubble(t, "wrong key", func(b *bench) {
		b.SetKey(secret)
		testkit.Equal(b, "answer", fmt.Sprint(b.search("aaaa")), "status 403")
		b.want("")
	})
}

func TestRefereeReportsImpoliteRequestsOfWebRisk(t *testing.T) {
	inKey, inToken := with("X-Goog-Api-Key", secret), with("Authorization", "Bearer "+secret)
	send := func(set ...func(b *bench, secret string)) func(*bench, func(*http.Request)) {
		return func(b *bench, change func(*http.Request)) {
			for _, set := range set { // the later one counts
				set(b, secret)
			}
			r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
			change(r)
			b.sent(r)
		}
	}
	setKey, setToken := func(b *bench, secret string) { b.SetKey(secret) }, func(b *bench, secret string) { b.SetToken(secret) }
	both := func(one, two func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) { one(r); two(r) }
	}
	judgedChanged(t, inBubble, send(setToken, setKey), []changed[*http.Request]{
		{"key", inKey, "", 200},
		{"no key", unchanged, "without a key", 403},
		{"key elsewhere in the URL", both(inKey, adding("x="+url.QueryEscape(secret))), "holds the key", 200},
		{"POST", both(inKey, func(r *http.Request) { r.Method = "POST" }), "want GET", 405},
		{"clear-text search", both(inKey, func(r *http.Request) { r.URL.Path = "/v1/uris:search" }), "Web Risk, methods", 404},
	}...)
	judgedChanged(t, inBubble, send(setKey, setToken), []changed[*http.Request]{
		{"token", inToken, "", 200},
		{"key instead of a token", inKey, "without an access token", 401},
		{"token as parameter", both(inToken, adding("access_token="+url.QueryEscape(secret))), "parameter access_token", 200},
	}...)
	inBubble(t, "violations hide the token", func(b *bench) {
		b.SetToken("secret")
		b.diffWith("se-4b", nil, func(v url.Values) { v.Add("threatType", "secret") })
		if got := strings.Join(b.violations.take(), ""); !strings.Contains(got, `["[key]"]`) || strings.Contains(got, "secret") {
			b.Errorf("got %q, want [key] instead of the secret", got)
		}
	})
}

func TestRefereeKnowsAClientByItsCredential(t *testing.T) {
	sent := func(b *bench, name, value string) {
		r := politeRisk(b.T, diffPath, diffValues("se-4b", nil))
		r.Header.Set(name, value)
		_ = read(b, r, new(wrv1.ComputeThreatListDiffResponse))
	}
	key := func(b *bench, value string) { sent(b, "X-Goog-Api-Key", value) }
	token := func(b *bench, value string) { sent(b, "Authorization", "Bearer "+value) }
	tokens := func(status int) func(b *bench) {
		return func(b *bench) { b.Break("", 1, Fault{Status: status}); token(b, "a"); token(b, "b") }
	}
	judged(t, inBubble,
		act{"the first key again", func(b *bench) { key(b, "a"); key(b, "b"); key(b, "a") }, "next diff"},
		act{"a new token after a failure", tokens(500), "back-off"},
		act{"a new token after one that was refused", tokens(401), ""},
		act{"a token instead of a key", func(b *bench) { key(b, "a"); token(b, "a") }, ""})
}
