package protocol

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestRequestsHaveTheFormOfTheReference(t *testing.T) {
	odd := []byte{0xfb, 0xef, 0xfe, 0x00} // bytes whose base64 tells the alphabets apart
	for _, test := range []struct {
		name, path, query string
		ask               func(context.Context, Client) error
	}{
		{"all lists of a batch, versions of those that are held", "/v5/hashLists:batchGet",
			"alt=proto&names=se-4b&names=mw-4b&sizeConstraints.maxDatabaseEntries=7&version=--_-AA%3D%3D",
			toFetch(updater.Want{List: "se-4b"}, updater.Want{List: "mw-4b", Version: odd})},
		{"a first fetch of one list", "/v5/hashList/se-4b", "alt=proto&sizeConstraints.maxDatabaseEntries=7", toFetch(updater.Want{List: "se-4b"})},
		{"a later fetch of one list", "/v5/hashList/se-4b", "alt=proto&sizeConstraints.maxDatabaseEntries=7&version=--_-AA%3D%3D",
			toFetch(updater.Want{List: "se-4b", Version: odd})},
		{"the list of lists", "/v5/hashLists", "alt=proto", toList},
		{"a search", "/v5/hashes:search", "alt=proto&hashPrefixes=HTLFCA%3D%3D&hashPrefixes=--_-AA%3D%3D", toSearch("\x1d\x32\xc5\x08", "\xfb\xef\xfe\x00")},
	} {
		for _, endpoint := range []string{"https://sb.example", "https://sb.example/", "https://sb.example/mirror", "https://sb.example/mirror/", DefaultEndpoint} {
			t.Run(test.name+" at "+endpoint, func(t *testing.T) {
				var got *http.Request
				key := testKey
				if test.name == "the list of lists" {
					key = ""
				}
				c := clientOf(t, Config{Endpoint: endpoint, Key: key, MaxEntries: 7, Transport: answering(func(r *http.Request) (*http.Response, error) {
					got = r
					return nil, errors.New("asked")
				})})
				testkit.WantError(t, test.ask(t.Context(), c), "asked")
				testkit.Equal(t, "request", got.Method+" "+got.URL.String(), "GET "+strings.TrimSuffix(endpoint, "/")+test.path+"?"+test.query)
				want := http.Header{"Accept": {binaryForm}, "Accept-Encoding": {"gzip"}, "User-Agent": {"test/1"}}
				if endpoint != DefaultEndpoint && strings.HasPrefix(test.path, "/v5/hashList") { // a relay is asked for lists as they are stored
					want.Set(AsStoredHeader, "?1")
				}
				if key != "" {
					want["X-Goog-Api-Key"] = []string{key}
				}
				testkit.Equal(t, "header", got.Header, want)
			})
		}
	}
}

func TestNewClientRefusesWhatCannotWorkWithoutRepeatingIt(t *testing.T) {
	for _, test := range []struct {
		name  string
		alter func(*Config)
	}{
		{"no scheme", func(c *Config) { c.Endpoint = "secret.example" }},
		{"another scheme", func(c *Config) { c.Endpoint = "ftp://secret.example" }},
		{"no host", func(c *Config) { c.Endpoint = "https:///secret" }},
		{"a port only", func(c *Config) { c.Endpoint = "https://:443/secret" }},
		{"a user", func(c *Config) { c.Endpoint = "https://user:secret@sb.example" }},
		{"a query", func(c *Config) { c.Endpoint = "https://sb.example?key=secret" }},
		{"a fragment", func(c *Config) { c.Endpoint = "https://sb.example#secret" }},
		{"no URL", func(c *Config) { c.Endpoint = "https://sb.example/secret%zz" }},
		{"a control character in the endpoint", func(c *Config) { c.Endpoint = "https://sb.example/secret\n" }},
		{"a key with a space", func(c *Config) { c.Key = "secret secret" }},
		{"a key with a line break", func(c *Config) { c.Key = "secret\r\nX-Other: secret" }},
		{"a key with a byte of eight bits", func(c *Config) { c.Key = "secret\xff" }},
		{"no user agent", func(c *Config) { c.UserAgent = "" }},
	} {
		cfg := Config{Endpoint: "https://sb.example", Key: testKey, UserAgent: "test/1"}
		test.alter(&cfg)
		if _, err := NewV5(cfg); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), testKey) {
			t.Errorf("%s was taken, or the error repeats it: %v", test.name, err)
		}
	}
}

func TestListsComeFromAllPages(t *testing.T) {
	page := func(token, next string, names ...string) []byte {
		m := &sbv5.ListHashListsResponse{NextPageToken: next}
		for _, name := range names {
			m.HashLists = append(m.HashLists, &sbv5.HashList{Name: name, Metadata: &sbv5.HashListMetadata{
				Description: "of " + name, ThreatTypes: []sbv5.ThreatType{sbv5.ThreatType_MALWARE, 13, sbv5.ThreatType_UNWANTED_SOFTWARE},
			}})
		}
		return marshal(t, m)
	}
	pages := map[string][]byte{"": page("", "a=&b", "se-4b"), "a=&b": page("a=&b", "c"), "c": page("c", "", "mw-4b", "uws-4b")}
	c := newClient(t, answering(func(r *http.Request) (*http.Response, error) {
		return always(binaryForm, pages[r.URL.Query().Get("pageToken")])(r)
	}))
	got, err := c.Lists(t.Context())
	threats := lookup.Threats(0).With(lookup.Malware).With(lookup.UnwantedSoftware)
	want := []ListInfo{{"se-4b", "of se-4b", threats}, {"mw-4b", "of mw-4b", threats}, {"uws-4b", "of uws-4b", threats}}
	testkit.Must(t, err)
	testkit.Equal(t, "lists", got, want)
	requests := 0
	endless := newClient(t, answering(func(r *http.Request) (*http.Response, error) {
		requests++
		return always(binaryForm, page("", "again"))(r)
	}))
	testkit.Is(t, "pages without end", toList(t.Context(), endless), updater.ErrMalformed)
	testkit.Equal(t, "requests for pages without end", requests, maxPages)
}

func TestBatchMustAnswerWhatWasAsked(t *testing.T) {
	list := func(name string) []byte {
		return marshal(t, &sbv5.HashList{Name: name, Version: []byte{1}, MinimumWaitDuration: durationpb.New(time.Hour)})
	}
	for _, test := range []struct {
		name  string
		lists [][]byte
		good  bool
		wait  time.Duration // that the client was told of all lists, or of those that had come
	}{
		{"what was asked", [][]byte{list("se-4b"), list("mw-4b")}, true, 0},
		{"another order", [][]byte{list("mw-4b"), list("se-4b")}, false, 0},
		{"one list twice", [][]byte{list("se-4b"), list("se-4b")}, false, time.Hour},
		{"another name", [][]byte{list("se-4b"), list("se-8b")}, false, time.Hour},
		{"no name", [][]byte{list("se-4b"), list("")}, false, time.Hour},
		{"one list missing", [][]byte{list("se-4b")}, false, time.Hour},
		{"a list that breaks off", [][]byte{list("se-4b"), list("mw-4b")[:5]}, false, time.Hour},
		{"no list", nil, false, 0},
		{"one list too many", [][]byte{list("se-4b"), list("mw-4b"), list("uws-4b")}, false, time.Hour},
	} {
		c := newClient(t, always(binaryForm, batch(test.lists...)))
		taken := 0
		wait, err := c.Fetch(t.Context(), []updater.Want{{List: "se-4b"}, {List: "mw-4b"}}, func(int, *updater.Update) { taken++ })
		if test.good != (err == nil) || err != nil && !errors.Is(err, updater.ErrMalformed) || test.good && taken != 2 || wait != test.wait {
			t.Errorf("%s: got %d updates, a minimum wait of %s, %v", test.name, taken, wait, err)
		}
	}
	for form, body := range map[string][]byte{binaryForm: list("mw-4b"), "application/json": []byte(`{"name": "mw-4b"}`)} {
		testkit.Is(t, "one list under another name, as "+form, fetchOnce(t.Context(), newClient(t, always(form, body))), updater.ErrMalformed)
	}
}

func TestAnswersOfOtherTypes(t *testing.T) {
	one := new(sbv5.HashList)
	testkit.Must(t, proto.Unmarshal(unhex(t, wireFull), one))
	other := proto.CloneOf(one)
	other.Name = "mw-4b"
	testAnswersOfOtherTypes(t, one, "se-4b")
	testAnswersOfOtherTypes(t, &sbv5.BatchGetHashListsResponse{HashLists: []*sbv5.HashList{one, other}}, "se-4b", "mw-4b")
}

// testAnswersOfOtherTypes asks for lists, which answer is about.
func testAnswersOfOtherTypes(t *testing.T, answer proto.Message, lists ...string) {
	raw := marshal(t, answer)
	text, err := protojson.Marshal(answer)
	testkit.Must(t, err)
	withUnknown := []byte(strings.Replace(string(text), "{", `{"somethingNew": {"a": [1]},`, 1))
	for _, test := range []struct {
		body  []byte
		want  error
		types []string
	}{
		{raw, nil, []string{"application/x-protobuf", "application/x-protobuf; charset=utf-8", "Application/X-Protobuf",
			"application/protobuf", "application/vnd.google.protobuf", "application/octet-stream", ""}},
		{text, nil, []string{"application/json"}},
		{withUnknown, nil, []string{"application/json; charset=UTF-8"}},
		{raw, updater.ErrMalformed, []string{"application/json", "text/html", "text/plain"}},
		{text, updater.ErrMalformed, []string{"application/x-protobuf"}},
		{[]byte("<!DOCTYPE html><title>Welcome</title>"), updater.ErrMalformed, []string{"text/html; charset=utf-8"}},
		{raw[:len(raw)-1], updater.ErrMalformed, []string{"application/x-protobuf"}},
	} {
		for _, contentType := range test.types {
			err := fetchError(t.Context(), newClient(t, always(contentType, test.body)), lists...)
			testkit.Is(t, fmt.Sprintf("%d lists, %s", len(lists), contentType), err, test.want)
		}
	}
}

func TestStatusErrorsSayWhatTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(90 * time.Minute).UTC().Format(http.TimeFormat)
		past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		long := strings.Repeat("é", 400)
		dates := map[string]string{"our clock is years behind": "Thu, 26 Nov 2026 12:00:00 GMT", "the server's clock is years behind": "Thu, 01 Jan 1970 00:01:00 GMT"}
		tests := []struct {
			name       string
			status     int
			retryAfter string
			body       string
			want       updater.StatusError
		}{
			{"Google's error object", 403, "", `{"error":{"code":403,"message":"API not enabled","status":"PERMISSION_DENIED"}}`, updater.StatusError{Message: "API not enabled"}},
			{"no body", 500, "", "", updater.StatusError{}},
			{"another body", 502, "", "<html>bad gateway</html>", updater.StatusError{}},
			{"seconds to wait", 429, "3600", "", updater.StatusError{RetryAfter: time.Hour}},
			{"a date to wait for", 503, date, "", updater.StatusError{RetryAfter: 90 * time.Minute}},
			{"a date in the past", 503, past, "", updater.StatusError{}},
			{"our clock is years behind", 503, "Thu, 26 Nov 2026 12:20:00 GMT", "", updater.StatusError{RetryAfter: 20 * time.Minute}},
			{"the server's clock is years behind", 503, date, "", updater.StatusError{RetryAfter: 90 * time.Minute}},
			{"no time at all", 503, "soon", "", updater.StatusError{}},
			{"negative seconds", 503, "-5", "", updater.StatusError{}},
			{"more seconds than fit", 503, "99999999999999999999", "", updater.StatusError{RetryAfter: (1<<31 - 1) * time.Second}},
			{"a message of many lines", 400, "", `{"error":{"message":"one\ntwo\u001b[31m"}}`, updater.StatusError{Message: "one two [31m"}},
			{"a long message", 400, "", `{"error":{"message":"x` + long + `"}}`, updater.StatusError{Message: "x" + long[:298]}},
		}
		for _, status := range []int{204, 206, 301, 302, 303, 304, 307, 308} {
			row := tests[1] // no body
			row.name, row.status = fmt.Sprint("status ", status), status
			tests = append(tests, row)
		}
		for _, test := range tests {
			asked := 0
			c := newClient(t, answering(func(r *http.Request) (*http.Response, error) {
				if asked++; asked > 2 || r.Header["Cookie"] != nil {
					return nil, errors.New("a redirect was followed, or a cookie sent back")
				}
				header := http.Header{"Content-Type": {"application/json"}, "Date": {dates[test.name]}, "Location": {"https://elsewhere.example" + r.URL.Path}}
				header.Set("Set-Cookie", "id=1; Path=/")
				header.Set("Retry-After", test.retryAfter)
				return response(r, test.status, header, []byte(test.body)), nil
			}))
			err := cmp.Or(searchOnce(t.Context(), c), searchOnce(t.Context(), c))
			test.want.Code = test.status
			testkit.Equal(t, test.name, statusIn(err), test.want)
			testkit.Equal(t, test.name+": two searches, and whole characters", []any{asked, utf8.ValidString(fmt.Sprint(err))}, []any{2, true})
		}
	})
}

// statusIn returns the status in an error, the zero StatusError if there is none.
func statusIn(err error) (status updater.StatusError) {
	if e, ok := errors.AsType[*updater.StatusError](err); ok {
		status = *e
	}
	return status
}

// A server that is asked for alt=proto may write an error as a google.rpc.Status.
func TestBinaryErrorsSayWhatTheServerSaid(t *testing.T) {
	valid := []byte("\x08\x03\x12\x14API key not valid.\x1b[\x1a\x02\x0a\x00") // code, message, details
	long := strings.Repeat("details", 1<<14)
	for name, test := range map[string]struct {
		contentType string
		body        []byte
		want        string
	}{
		"code, message and details":      {"application/x-protobuf", valid, "API key not valid. ["},
		"long details":                   {"application/x-protobuf", protowire.AppendString(protowire.AppendTag(valid, 3, protowire.BytesType), long), "API key not valid. ["},
		"no message":                     {"application/x-protobuf", valid[:2], ""},
		"cut":                            {"application/x-protobuf", valid[:10], ""},
		"JSON of the type that we want":  {"application/x-protobuf", []byte(`{"error":{"message":"quota"}}`), "quota"},
		"a page":                         {"text/html", valid, ""},
		"neither":                        {"application/x-protobuf", []byte("<html>bad gateway</html>"), ""},
		"compressed":                     {jsonForm, zipped([]byte(`{"error":{"message":"API not enabled"}}`)), "API not enabled"},
		"the message is another message": {"application/x-protobuf", []byte("\x12\x03\xff\xfe\xfd"), "\ufffd\ufffd\ufffd"},
	} {
		coding := map[bool]string{true: "gzip"}[name == "compressed"]
		err := searchOnce(t.Context(), newClient(t, encoded(400, coding, test.contentType, test.body)))
		testkit.Equal(t, name, statusIn(err), updater.StatusError{Code: 400, Message: test.want})
	}
}

// endless is a body that never ends; it counts what was read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = [2]byte{0x7a, 0x00}[i%2]
	}
	e.read += int64(len(p))
	return len(p), nil
}

func (e *endless) Close() error { return nil }

func TestBodiesAreBounded(t *testing.T) {
	var declared int64
	var contentType string
	body := new(endless)
	c := newClient(t, answering(func(r *http.Request) (*http.Response, error) {
		a := response(r, http.StatusOK, http.Header{"Content-Type": {contentType}}, nil)
		*body = endless{}
		a.Body, a.ContentLength = body, declared
		return a, nil
	}))
	for _, test := range []struct {
		name, contentType string
		ask               func(context.Context, Client) error
		declared, most    int64
	}{
		{"a search answer without end", binaryForm, searchOnce, -1, 256<<10 + 1<<16},
		{"a list without end", binaryForm, fetchOnce, -1, 128<<20 + 1<<20},
		{"a list in JSON without end", jsonForm, fetchOnce, -1, 32<<20 + 1<<16},
		{"a portal's page without end", "text/html", fetchOnce, -1, 0},
		{"a search answer declared too long", binaryForm, searchOnce, 256<<10 + 1, 0},
		{"a list declared too long", binaryForm, fetchOnce, 128<<20 + 1, 0},
		{"a body declared longer than any", binaryForm, fetchOnce, 1 << 62, 0},
	} {
		declared, contentType = test.declared, test.contentType
		testkit.Is(t, test.name, test.ask(t.Context(), c), updater.ErrMalformed)
		testkit.Between(t, test.name+": bytes read", body.read, 0, test.most)
	}
}

func zipped(raw []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	z.Write(raw)
	z.Close()
	return buf.Bytes()
}

// encoded is an answer whose body is compressed as coding says.
func encoded(status int, coding, contentType string, body []byte) answering {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, status, http.Header{"Content-Type": {contentType}, "Content-Encoding": {coding}}, body), nil
	}
}

func TestBytesThatComeOfAByteAreBounded(t *testing.T) {
	testkit.Long(t)
	noise := make([]byte, 5<<18)
	rand.NewChaCha8([32]byte{}).Read(noise)
	hex := fmt.Appendf(nil, "%x", noise)
	for _, test := range []struct {
		name, coding string
		raw          []byte
		good         bool
	}{
		{"a megabyte of one byte", "gzip", make([]byte, 1<<20), true},
		{"more than a megabyte of one byte", "gzip", make([]byte, 1<<20+1<<18), false},
		{"more of one byte, not compressed", "", make([]byte, 4<<20), true},
		{"more that does not compress", "gzip", noise, true},
		{"more, half of it for nothing", "gzip", hex, true},
		{"a list of numbers that is indented", "gzip", bytes.ReplaceAll(hex, []byte("0"), []byte(",\n                    ")), true},
	} {
		body := test.raw
		if test.coding != "" {
			body = zipped(body)
		}
		answer, _ := encoded(200, test.coding, "", body)(nil)
		testkit.Must(t, Bound(t.Context(), answer, 128<<20))
		got, err := io.ReadAll(answer.Body)
		if test.good != (err == nil) || test.good && !bytes.Equal(got, test.raw) || err != nil && !errors.Is(err, updater.ErrMalformed) {
			t.Errorf("%s: %d of %d bytes, %v", test.name, len(got), len(test.raw), err)
		}
	}
}

func TestCompressions(t *testing.T) {
	raw := unhex(t, wireFound)
	whole := zipped(raw)
	for _, test := range []struct {
		name, coding string
		body         []byte
		want         error
	}{
		{"none", "", raw, nil},
		{"none, by name", "identity", raw, nil},
		{"gzip", "gzip", whole, nil},
		{"gzip in capitals", "GZIP", whole, nil},
		{"gzip by its old name", "x-gzip", whole, nil},
		{"gzip in two parts", "gzip", append(zipped(raw[:5]), zipped(raw[5:])...), nil},
		{"gzip that is cut", "gzip", whole[:len(whole)-9], io.ErrUnexpectedEOF},
		{"gzip that is not", "gzip", raw, updater.ErrMalformed},
		{"gzip with a wrong checksum", "gzip", append(bytes.Clone(whole[:len(whole)-8]), make([]byte, 8)...), updater.ErrMalformed},
		{"gzip that is corrupt", "gzip", append(bytes.Clone(whole[:10]), 0xff, 0xff), updater.ErrMalformed},
		{"gzip twice", "gzip, gzip", zipped(whole), updater.ErrMalformed},
		{"another one", "br", raw, updater.ErrMalformed},
	} {
		answer, err := newClient(t, encoded(200, test.coding, binaryForm, test.body)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		testkit.Is(t, test.name, err, test.want)
		testkit.Equal(t, test.name+": a threat", len(answer.Threats) == 1, test.want == nil)
	}
}

const jsonForm = "application/json"

// manyFullHashes is an answer with n full hashes, each with four details of two attributes.
func manyFullHashes(n int) *sbv5.SearchHashesResponse {
	m := new(sbv5.SearchHashesResponse)
	for i := range n {
		f := &sbv5.FullHash{FullHash: bytes.Repeat([]byte{byte(i)}, 32)}
		for threat := range sbv5.ThreatType(4) {
			f.FullHashDetails = append(f.FullHashDetails, detail(threat+1, sbv5.ThreatAttribute_CANARY, sbv5.ThreatAttribute_FRAME_ONLY)...)
		}
		m.FullHashes = append(m.FullHashes, f)
	}
	return m
}

// An answer to a search that needs much memory for each of its bytes is refused
// before it is decoded, and one that is long for good reasons is not.
func TestStructuresOfAnAnswerAreBounded(t *testing.T) {
	good := manyFullHashes(2 * lookup.MaxPrefixes)
	goodText, err := protojson.Marshal(good)
	testkit.Must(t, err)
	tooMany := manyFullHashes(1500)
	for _, test := range []struct {
		name, contentType string
		body              []byte
		good              bool
	}{
		{"two full hashes of four details behind each of 240 prefixes", binaryForm, marshal(t, good), true},
		{"the same in JSON", jsonForm, goodText, true},
		{"six of them", binaryForm, marshal(t, tooMany), false},
		{"empty full hashes", binaryForm, bytes.Repeat([]byte{0x0a, 0}, 20_000), false},
		{"empty full hashes in JSON", jsonForm, []byte(`{"fullHashes":[{}` + strings.Repeat(",{}", 20_000) + `]}`), false},
	} {
		_, err := newClient(t, always(test.contentType, test.body)).Search(t.Context(), []lookup.Prefix{zeroPrefix})
		refused := strings.Contains(fmt.Sprint(err), "of memory") && errors.Is(err, updater.ErrMalformed)
		testkit.Equal(t, fmt.Sprint(test.name, ": ", err), refused, !test.good)
	}
}

// What is said of messages is what they take: the weight is no less than the bytes that decoding allocates.
func TestWeightIsWhatDecodingTakes(t *testing.T) {
	for name, m := range map[string]proto.Message{
		"searches":     manyFullHashes(480),
		"empty hashes": &sbv5.SearchHashesResponse{FullHashes: make([]*sbv5.FullHash, 5000)},
		"threat types": &sbv5.HashList{Metadata: &sbv5.HashListMetadata{ThreatTypes: make([]sbv5.ThreatType, 100_000)}},
	} {
		raw := marshal(t, m)
		got := allocated(func() { testkit.Must(t, proto.Unmarshal(raw, m.ProtoReflect().New().Interface())) })
		weight := math.MaxInt32 - int(weigh(raw, m.ProtoReflect().Descriptor(), math.MaxInt32)) + len(raw)
		testkit.Between(t, name+": bytes that decoding allocates", got, (weight+3)/4, 2*weight)
	}
}

// allocated returns how many bytes are allocated in f.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func TestEntriesFitAnInt(t *testing.T) {
	r := rice{width: 4, parameter: 3, count: math.MaxInt32, size: math.MaxInt64 / 8}
	testkit.Is(t, "one more than 1<<31-1 integers", r.check(parametersV5(4)), updater.ErrMalformed)
	braces := bytes.Repeat([]byte{'{'}, 1<<32/messageWeight+1)
	testkit.Is(t, "a weight of more than 32 bits", boundUpdates.check(braces, jsonForm, nil), updater.ErrMalformed)
}

func TestVersionsAreBounded(t *testing.T) {
	for size, want := range map[int]error{1024: nil, 1025: updater.ErrMalformed} {
		for service, u := range map[string]*updater.Update{
			"v5":       updateOf(t.Context(), &sbv5.HashList{Name: "se-4b", Version: make([]byte, size), MinimumWaitDuration: durationpb.New(time.Hour)}),
			"Web Risk": updateOfWebRisk(t.Context(), &wrv1.ComputeThreatListDiffResponse{NewVersionToken: make([]byte, size), ResponseType: wrv1.ComputeThreatListDiffResponse_RESET}, serverClock{}),
		} {
			testkit.Is(t, fmt.Sprintf("%s, a version of %d bytes", service, size), u.Err, want)
			testkit.Equal(t, service+": there is a minimum wait", u.MinimumWait == time.Hour, service == "v5")
		}
	}
}

// Whatever of an answer is in memory already, it is not decoded when the request is over.
func TestDecodingEndsWithItsContext(t *testing.T) {
	testkit.Long(t)
	whole, _ := fullList(t, "se-4b", 1000)
	long, _ := fullList(t, "se-4b", 1_000_000)
	wholeText, err := protojson.Marshal(whole)
	testkit.Must(t, err)
	streamed := inOrder(t, long)
	testkit.Between(t, "bytes of a list that is not read whole", int64(len(streamed)), maxWhole+1, math.MaxInt64)
	v5 := func(contentType string, body []byte) Client { return newClient(t, always(contentType, body)) }
	webRisk := func(additions *wrv1.ThreatEntryAdditions, removals *wrv1.ThreatEntryRemovals) Client {
		m := riskUpdate(riskReset, "")
		if m.Additions, m.Removals = additions, removals; removals != nil {
			m.ResponseType = riskDiff
		}
		m.RecommendedNextDiff = timestamppb.New(time.Now().Add(time.Hour + time.Minute))
		return newWebRisk(t, always(binaryForm, marshal(t, m)))
	}
	for name, c := range map[string]Client{
		"v5, read whole":             v5(binaryForm, marshal(t, whole)),
		"v5, decoded while it comes": v5(binaryForm, streamed),
		"v5, JSON":                   v5(jsonForm, wholeText),
		"Web Risk, Rice":             webRisk(&wrv1.ThreatEntryAdditions{RiceHashes: riskRice(5, 2, 2, "f702")}, nil),
		"Web Risk, raw":              webRisk(&wrv1.ThreatEntryAdditions{RawHashes: []*wrv1.RawHashes{riskRaw(4, "00000001")}}, nil),
		"Web Risk, raw removals":     webRisk(nil, &wrv1.ThreatEntryRemovals{RawIndices: &wrv1.RawIndices{Indices: []int32{0}}}),
		"Web Risk, removals":         webRisk(nil, &wrv1.ThreatEntryRemovals{RiceIndices: riskRice(0, 0, 0, "")}),
	} {
		t.Run(name, func(t *testing.T) {
			old := heldLists()[4]
			old.Name = "se-4b"
			for _, over := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var applied error
				wait, err := c.Fetch(ctx, []updater.Want{{List: "se-4b", Version: old.Version}}, func(_ int, u *updater.Update) {
					if over {
						cancel()
					}
					_, _, applied = updater.Apply(old, u, 1<<24)
				})
				testkit.Is(t, fmt.Sprint("the request is over: ", over), err, map[bool]error{true: context.Canceled}[over])
				testkit.Equal(t, fmt.Sprint("the update is cut: ", applied), applied != nil && !errors.Is(applied, updater.ErrChecksum), over)
				if told := name == "v5, read whole" || name == "v5, JSON" || strings.HasPrefix(name, "Web Risk"); over && told != (wait >= time.Hour) {
					t.Errorf("the request is over, and the minimum wait in its answer is %s", wait)
				}
			}
		})
	}
}
