package test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	tap "github.com/dnstap/golang-dnstap"
	fs "github.com/farsightsec/golang-framestream"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// marked is a label of each hostile name, by which its traces are found.
const marked = "mark7z"

// hostileLabels are first labels of names that clients may ask for (RFC 2181, section 11: a label may have any bytes).
var hostileLabels = map[string]string{
	"control characters": "\x00\x07\x08\x0b\x0c\x7f",
	"a new line":         "x\n[ERROR] forged",
	"a carriage return":  "x\r\n[ERROR] forged",
	"colours":            "\x1b[31m\x1b[2J\x1b]0;forged\x07",
	"quotes":             `"'` + "`" + `\"\\`,
	"a script":           "<script>forged()</script>",
	"an attribute":       `"><img src=x onerror=forged()>`,
	"an entity":          "&lt;&#60;&amp;",
	"JSON":               `","verdict":"forged","x":"`,
	"a metric":           "\"} 1\nforged{x=\"",
	"a template":         "{{.}}{name}${x}%s%n%!d(MISSING)",
	"no UTF-8":           "\xff\xfe\xc0\x80\xed\xa0\x80",
	"right to left":      "\u202eforged\u2028\u0085",
	"a dot":              "forged.example",
	// With the mark, the zone and why.safebrowsing this has nearly 255 bytes, the most of a
	// name (RFC 1035, section 2.3.4).
	"a long name": strings.Repeat("\xff", 189),
}

// hostileName returns the name in presentation form, below a mark and a zone.
func hostileName(label, mark, zone string) string {
	var escaped strings.Builder
	for i, b := range []byte(label) {
		if i > 0 && i%63 == 0 {
			escaped.WriteByte('.')
		}
		fmt.Fprintf(&escaped, `\%03d`, b)
	}
	return escaped.String() + "." + mark + "." + zone
}

// A name from a client is escaped wherever it appears. It begins no line, no field and no
// element of its own.
func TestHostileNamesAreEscapedEverywhere(t *testing.T) {
	testkit.Long(t)
	for _, form := range []string{"log", "log json"} {
		t.Run(form, func(t *testing.T) {
			lines := testkit.Capture(t)
			sink, extras := dnstapExtras(t)
			w := threatened(t, "evil.example.com/")
			own := writeFile(t, t.TempDir(), "own.txt", "||blocked.example.org^\n")
			w.start(strings.Replace(w.corefile(form, "explain", "status 127.0.0.1:0 names", "structured 65010 mailto:help@example.org", "block "+own),
				"errors", "errors\n\tmetadata\n\tdnstap tcp://"+sink+" full {\n\t\textra \"{/safebrowsing/expression} {/safebrowsing/list}\"\n\t}", 1))
			w.updated(1)
			page := w.pageURL(lines)
			n := 0
			for kind, label := range hostileLabels {
				n++
				mark := fmt.Sprintf("%s%dz", marked, n)
				zone := []string{"evil.example.com.", "blocked.example.org."}[n%2]
				w.askHostile(t, kind, hostileName(label, mark, zone))
				w.wantLogged(t, lines, form, mark, hostileName(label, mark, zone))
				wantEscaped(t, "the status page about "+kind, get(t, page+"?host="+url.QueryEscape(label+"."+mark+"."+zone)), true)
			}
			wantEscaped(t, "the status page", get(t, page), true)
			testkit.WantNone(t, gathered(t), marked, "forged")
			for range n {
				testkit.Until(t, "a frame", func() bool { return len(extras) > 0 })
				extra := <-extras
				wantEscaped(t, "dnstap", extra, false)
				testkit.Equal(t, extra+": it has the list", strings.Contains(extra, "se-4b") || strings.Contains(extra, "own.txt"), true)
			}
			for _, line := range lines.About("") {
				wantEscaped(t, "the log", strings.TrimSuffix(line, "\n"), false)
			}
		})
	}
}

// askHostile asks for a name that is blocked, with a structured error and without, and why.
func (w *world) askHostile(t *testing.T, kind, name string) {
	t.Helper()
	for _, structured := range []bool{false, true} {
		m := query(name, dns.TypeA)
		if structured {
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65010}}
		}
		answer := w.exchange("udp", m)
		text, blocked := ede(answer)
		testkit.Equal(t, kind+": "+name+" is blocked", blocked, true)
		wantEscaped(t, "the Extended DNS Error for "+kind, text, false)
		testkit.Equal(t, kind+": JSON: "+text, json.Valid([]byte(text)), structured)
	}
	m := new(dns.Msg).SetQuestion(name+"why.safebrowsing.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	answer := w.exchange("udp", m)
	if len(answer.Answer) == 0 {
		t.Fatalf("%s: no explanation:\n%v", kind, answer)
	}
	for _, record := range answer.Answer {
		for _, text := range record.(*dns.TXT).Txt {
			wantEscaped(t, "the explanation of "+kind, text, false)
		}
	}
}

// wantEscaped fails if a text has something that only a name of hostileLabels can have brought there: control characters,
// bytes that are no UTF-8, markup. Only pages have more than ASCII, and lines.
func wantEscaped(t *testing.T, where, text string, page bool) {
	t.Helper()
	testkit.Equal(t, where+" is UTF-8", utf8.ValidString(text), true)
	bad := func(r rune) bool {
		return !unicode.IsGraphic(r) && !(page && r == '\n') || r > unicode.MaxASCII && !page
	}
	if i := strings.IndexFunc(text, bad); i >= 0 {
		t.Errorf("%s has a wrong character at byte %d: %q", where, i, text)
	}
	if page {
		testkit.WantNone(t, where+": "+text, "<script", "<img", "onerror=forged()>")
	}
}

// ownLine is how each line of ours begins.
var ownLine = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(INFO|WARNING)\] plugin/safebrowsing: `)

// wantLogged waits for a line about a name. The log takes ten lines a second, so the name is
// asked for until it is one of them.
func (w *world) wantLogged(t *testing.T, lines *testkit.Lines, form, mark, name string) {
	t.Helper()
	testkit.Until(t, "a line about "+name, func() bool { return len(lines.About(mark)) > 0 || w.ask(name, dns.TypeA) == nil })
	for _, line := range lines.About(mark) {
		var fields map[string]any
		switch {
		case strings.Contains(line, "] plugin/safebrowsing: "): // in json, a WARNING about a name that is asked for often
			testkit.Equal(t, line+"is a line of ours", ownLine.MatchString(line), true)
		case json.Unmarshal([]byte(line), &fields) != nil || fields["event"] != "blocked" || fields["verdict"] == "forged" || fields["x"] != nil:
			t.Errorf("Expected JSON with our fields only, got %q", line)
		}
	}
}

// dnstapExtras listens for dnstap at the address that it returns, for the extra fields of answers that block.
func dnstapExtras(t *testing.T) (address string, extras chan string) {
	t.Helper()
	extras = make(chan string, 1000)
	return dnstapSink(t, func(raw []byte) {
		var frame tap.Dnstap
		answer := new(dns.Msg)
		if proto.Unmarshal(raw, &frame) == nil && answer.Unpack(frame.GetMessage().GetResponseMessage()) == nil && isBlocked(answer) {
			extras <- string(frame.GetExtra())
		}
	}), extras
}

// dnstapSink takes what dnstap sends to the address that it returns, and calls each with each frame.
func dnstapSink(t *testing.T, each func(raw []byte)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				decoder, err := fs.NewDecoder(conn, &fs.DecoderOptions{ContentType: []byte("protobuf:dnstap.Dnstap"), Bidirectional: true})
				for raw := []byte(nil); err == nil; raw, err = decoder.Decode() {
					each(raw) // nothing at first
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func gathered(t *testing.T) string {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	testkit.Must(t, err)
	return fmt.Sprint(all)
}

// A key is in the right place, in a list's URL, and in what servers answer.
func TestAKeyIsOnNoPageInNoMetricAndInNoLog(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	t.Setenv(config.KeyVariable, "")
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.google.SetKey(testkit.Key)
	w.threaten("evil.example.com/")
	repeats := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", "http://"+testkit.Key+".example/"+testkit.Token)
		rw.WriteHeader(http.StatusFound)
	}))
	defer repeats.Close()
	key := writeFile(t, t.TempDir(), "key", testkit.Key+"\n")
	w.start(w.corefile("status 127.0.0.1:0 names", "log json", "api_key_file "+key, "resolver 127.0.0.1:1",
		"block "+repeats.URL+"/hosts?key="+testkit.Key+"&token="+testkit.Token))
	w.updated(1)
	url := w.pageURL(lines)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(w.t, "the failure of the list", func() bool { return len(lines.About("cannot be updated")) > 0 })
	writeFile(t, filepath.Dir(key), "key", "'"+testkit.Token+"'")
	testkit.Until(w.t, "the refusal of the new key", func() bool { return len(lines.About("Cannot replace the API key")) > 0 })
	for _, text := range []string{get(t, url), get(t, url+"?name=evil.example.com"), gathered(t), lines.String()} {
		for _, secret := range []string{testkit.Key, testkit.Token} {
			testkit.Equal(t, "a secret is in\n"+text, testkit.Leaks(text, secret), false)
		}
	}
}

// A server that sends more than one answer on a kept connection makes package net/http write the surplus into the log of
// the process: the key, if it likes.
func TestTheKeyIsNotInWhatAServerSendsUnasked(t *testing.T) {
	lines := testkit.Capture(t)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, _, _ := http.NewResponseController(rw).Hijack()
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nthe \"key\" is %s", r.Header.Get("X-Goog-Api-Key"))
	}))
	defer server.Close()
	w := newWorld(t)
	w.endpoint, w.db = server.URL, "off"
	w.start(w.corefile("api_key made-for-this-test", "mode nostorage"))
	w.ask("www.example.org.", dns.TypeA)
	testkit.Until(t, "the line of net/http", func() bool { return len(lines.About("Unsolicited response")) > 0 })
	testkit.Equal(t, "the key in the log", lines.About("made-for-this-test"), nil)
}
