package ownlist

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// then is before every expiry of the tests.
var then = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func host(t testing.TB, text string) lookup.Host {
	t.Helper()
	h, ok := lookup.ParseHost(text)
	if !ok {
		t.Fatalf("%q is no host", text)
	}
	return h
}

// listOf reads a list from a text.
func listOf(t testing.TB, text string, allow bool) (*File, Summary) {
	t.Helper()
	return listAs(t, text, Config{Allow: allow})
}

func listAs(t testing.TB, text string, as Config) (*File, Summary) {
	t.Helper()
	c, err := read(strings.NewReader(text), as, 0)
	must(t, err)
	f := Hosts("list", nil)
	f.content.Store(c)
	return f, c.summary
}

// verdict is B, A or - for each host.
func verdict(t testing.TB, f *File, hosts ...string) string {
	t.Helper()
	var got strings.Builder
	for _, text := range hosts {
		switch m, ok := f.Match(host(t, text), then); {
		case !ok:
			got.WriteByte('-')
		case m.Allow:
			got.WriteByte('A')
		default:
			got.WriteByte('B')
		}
	}
	return got.String()
}

// around holds a name, names below it, its parent, and a name that only ends with the same letters.
var around = []string{"bad.example.com", "www.bad.example.com", "a.b.bad.example.com", "example.com", "notbad.example.com"}

func TestEachFormatMeansWhatItsToolsMean(t *testing.T) {
	const zone, rpz, owner = "@ SOA a. b. 1 2 3 4 5\n", "$ORIGIN rpz.example.\n", "rpz.example. SOA a. b. 1 2 3 4 5\n"
	for _, tt := range []struct {
		block, allow string // verdicts on around, in a block and in an allow list
		skipped, bad int
		texts        []string
	}{
		{"-----", "-----", 0, 0, []string{ // only what is no entry, by format
			"", "\uFEFF# bad.example.com", "127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n0.0.0.0 0.0.0.0",
			"[Adblock Plus 2.0]\n[uBlock Origin]\n[AdGuard]", zone + "@ NS a.\n@ A 192.0.2.1\n$TTL 1h",
		}},
		{"B----", "AAA--", 0, 0, []string{ // names and hosts
			"bad.example.com", " \tBAD.Example.com.  ", "bad.example.com#x\n# y\n! z\n; w\nbad.example.com ; v", "bad.example.com/",
			"\uFEFFbad.example.com\r\n\r\n# x\r\nx.example", // a byte order mark, CRLF, no end of the last line
			"b%61d.example.com", "0.0.0.0 bad.example.com", "127.0.0.1\tlocalhost x.example  bad.example.com#y", "::1 bad.example.com",
		}},
		{"B----", "AAA--", 0, 1, []string{"0.0.0.0 bad.example.com <b>", strings.Repeat("a", maxLine+1) + "\nbad.example.com"}},
		{"BB---", "AAA--", 0, 0, []string{ // hosts with the client's own and the sinkhole's addresses
			"127.1.2.3 bad.example.com\n::ffff:127.0.0.1 www.bad.example.com", "192.0.2.99 bad.example.com\n2001:db8::99 www.bad.example.com",
		}},
		{"-----", "AAA--", 0, 0, []string{ // where a name really is
			"10.1.2.3 bad.example.com\n2001:db8::1 bad.example.com\n255.255.255.255 broadcasthost", "address=/bad.example.com/192.0.2.1",
		}},
		{"-BB--", "-AA--", 0, 0, []string{
			"*.bad.example.com", "||*.bad.example.com^", "*.bad.example.com CNAME .", rpz + zone + "$ORIGIN com\n*.bad.example CNAME .",
		}},
		{"BBB--", "AAA--", 0, 0, []string{ // trees: dots, adblock with options for whole domains, dnsmasq, unbound
			".bad.example.com", "||bad.example.com^", "||bad.example.com", "||bad.example.com^|", "||bad.example.com^$important",
			"||bad.example.com^$all,doc,document,popup", "address=/bad.example.com/", "address=/bad.example.com/192.0.2.99",
			"address=/bad.example.com/#\naddress=/www.example.com/0.0.0.0 # x", "address=/x.example/bad.example.com/::",
			"local=/x.example/\nserver=/bad.example.com/", "local-zone: bad.example.com static",
		}},
		{"BBB--", "AAA--", 0, 1, []string{"server:\n  local-zone: \"bad.example.com.\" always_nxdomain # x"}},
		{"AAA--", "AAA--", 0, 0, []string{"@@||bad.example.com^", "@@||bad.example.com^$important"}},
		{"BA---", "AA---", 0, 0, []string{"|bad.example.com|\n@@|www.bad.example.com^|"}},
		{"BBBBB", "AAAAA", 0, 0, []string{"* CNAME ."}},
		{"A----", "A----", 0, 0, []string{"bad.example.com CNAME rpz-passthru.", "bad.example.com CNAME bad.example.com."}}, // as once
		{"B----", "A----", 0, 0, []string{
			"|bad.example.com^", "http://bad.example.com/", "HTTPS://Bad.example.com", "https://u:p@bad.example.com:443/ # x",
			// RPZ: actions
			"bad.example.com CNAME .", "bad.example.com 60 IN CNAME *.", "bad.example.com in 1h30m cname . ; x", "bad.example.com CNAME rpz-drop.",
			"bad.example.com A 192.0.2.1", "bad.example.com AAAA 2001:db8::1", "bad.example.com CNAME garden.example.",
			// RPZ: names and origins
			"bad.example.com. CNAME .", "$ORIGIN Rpz.example.\nbad.example.com.rpz.Example. CNAME .", owner + "bad.example.com.rpz.example. CNAME .",
			owner + "bad.example.com CNAME .", "$ORIGIN .\nrpz.example SOA a. b. 1 2 3 4 5\n$ORIGIN com.rpz.example.\nbad.example CNAME .",
			rpz + zone + "$ORIGIN bad.example.com.rpz.example.\n@ CNAME .", zone + rpz + "bad.example.com CNAME .",
			// RPZ: an SOA over lines, and one that is never closed
			"@ SOA a. b. (\n 1 ; x )\n 2h\n\n 3 4 5 )\nbad.example.com CNAME .", "@ SOA a. b. ( 1\n 2\nbad.example.com CNAME .",
		}},
		{"B----", "A----", 1, 0, []string{"bad.example.com TXT x\n  CNAME ."}},
		{"-----", "-----", 1, 0, []string{
			"||bad.example.com^$third-party", "||bad.example.com^$important,domain=x.example", "||bad.example.com^$badfilter",
			"||bad.example.com/x.js^", "bad.example.com CNAME rpz-tcp-only.", "bad.example.com CNAME rpz-new.",
			"bad.example.com CH A 192.0.2.1", "http://bad.example.com:8080/",
		}},
		{"-----", "-----", 2, 0, []string{
			"|bad.example.com\n|*.bad.example.com^", "bad.example.com TXT \"a;b\"\nbad.example.com MX 10 x.",
			"local-zone: \"bad.example.com\" transparent\nlocal-data: \"bad.example.com A 0.0.0.0\"",
		}},
		{"-----", "-----", 2, 2, []string{"$INCLUDE x\n$GENERATE 1-2 a$ CNAME .\n$OTHER x\n$ORIGIN"}},
		{"-----", "-----", 3, 0, []string{"*$denyallow=com\nbad.example.com$client=x\n@@/bad/"}},
		{"-----", "-----", 4, 0, []string{
			"||bad.\n||ba*.example.com^\n|http://bad.example.com^\n@@bad.example.com",
			"bad.example.com##.x\nbad.example.com#@#.x\nbad.example.com#?#x\n/bad/",
			"1.RPZ-IP CNAME .\n1.rpz-client-ip CNAME .\nx.rpz-nsdname CNAME .\n1.rpz-nsip A 127.0.0.1",
			"http://bad.example.com/x\nhttp://bad.example.com/?\nhttp://bad.example.com#x\nbad.example.com/x",
		}},
		{"-----", "-----", 5, 0, []string{ // dnsmasq that resolves
			"server=/bad.example.com/9.9.9.9\nserver=/bad.example.com/#\naddress=/#/\naddress=//\nlocal=/*.example.com/",
		}},
		{"-----", "-----", 0, 1, []string{
			"b*d.example.com", "*", "bad.example.com www.bad.example.com", "||bad example^", "local-zone: \"bad.example.com\"",
			zone + "$ORIGIN x.example.rpz.example.\n@ CNAME .\n* CNAME .", // an origin below a zone without a name
		}},
		{"-----", "-----", 0, 2, []string{ // outside of the zone, and too long
			rpz + "bad.example.com. CNAME .\nbad.example.com.xrpz.example. CNAME .",
			strings.Repeat("a", 64) + ".example\n" + strings.Repeat("a.", 127) + "example",
		}},
		{"-----", "-----", 0, 3, []string{ // cut short, prose, and nothing
			"address=/bad.example.com\naddress=/<b>/\nlocal=/bad.example.com/ x",
			"bad.example.com A friend\nbad.example.com CNAME . .\nbad.example.com IN", "http:///\nhttp://a b/\n://",
		}},
		{"-----", "-----", 0, 4, []string{".\n*.\n||^\n..."}},
		{"-----", "-----", 0, 6, []string{"<bad>\nbad.example.com!\nipset=/bad.example.com/x\nx=y\n[section]\nb\x00d.example.com"}},
	} {
		for _, text := range tt.texts {
			for allow, want := range map[bool]string{false: tt.block, true: tt.allow} {
				sinkhole := Config{Allow: allow, IPv4: netip.MustParseAddr("192.0.2.99"), IPv6: netip.MustParseAddr("2001:db8::99")}
				f, sum := listAs(t, text, sinkhole)
				got, want := []any{verdict(t, f, around...), sum.NotSupported(), sum.Bad.Count}, []any{want, tt.skipped, tt.bad}
				testkit.Equal(t, fmt.Sprintf("%.99q: verdicts, skipped and bad lines, allow list %v: %v", text, allow, sum.Remarks()), got, want)
			}
		}
	}
}

func TestAddressesMatchExactly(t *testing.T) {
	text := "192.0.2.1\n[2001:DB8::1]\n2001:db8::2\n||192.0.2.3^\n.2.4\nhttp://[2001:db8::5]/\n0xc0000206\n* CNAME .\n"
	f, _ := listOf(t, text, false)
	hosts := []string{"192.0.2.1", "[2001:db8::1]", "[2001:db8:0::2]", "192.0.2.3", "192.0.2.4", "[2001:db8::5]", "192.0.2.6", "192.0.2.7", "[2001:db8::9]"}
	testkit.Equal(t, "verdicts", verdict(t, f, hosts...), "BBBB-BB--")
}

func TestNamesWithHiddenLabelsAreBelow(t *testing.T) {
	h := lookup.FromQname(`a\.b.bad.example.com.`)
	for text, want := range map[string]bool{"bad.example.com": false, "*.bad.example.com": true, ".bad.example.com": true, "||example.com^": true} {
		f, _ := listOf(t, text, false)
		_, matched := f.Match(h, then)
		_, _, found, _ := find(strings.NewReader(text), Config{}, h, "", then)
		testkit.Equal(t, text+": matched, and its line found", [2]bool{matched, found}, [2]bool{want, want})
	}
}

func TestTheFirstBadLineIsKeptAndCut(t *testing.T) {
	_, sum := listOf(t, "ok.example\n"+strings.Repeat("é!", 90)+"\n\n <1>\n"+strings.Repeat("x", 5000), false)
	testkit.Equal(t, "bad lines", sum.Bad, Lines{Count: 3, First: Line{2, strings.Repeat("é!", 26) + "é"}})
}

// FuzzRead: the parser never panics and emits canonical hosts, the content finds all of them, and FindLine agrees with the content.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "ownlist", "*.txt"))
	must(f, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must(f, err)
		f.Add(raw, true)
		f.Add(raw, false)
		for line := range bytes.Lines(raw) {
			f.Add(line, false)
		}
	}
	f.Add([]byte("\uFEFF@ SOA a. b. (\n$ORIGIN .\n IN 1h"), false)
	f.Add([]byte("a.example # until 2027-01-31 until"), true)
	f.Add([]byte("||a.example^$important\r\n\x00\r\r\n"+strings.Repeat("%25", 2000)), true)
	f.Fuzz(func(t *testing.T, raw []byte, allow bool) {
		c, err := read(bytes.NewReader(raw), Config{Allow: allow}, 0)
		must(t, err)
		lines := bytes.Count(raw, []byte("\n")) + 1
		sum := c.summary
		if sum.Bad.Count+sum.NotSupported()+sum.Elsewhere.Count+sum.LocalData.Count > lines || len(sum.Unsupported) > maxKinds+1 || len(sum.Wide.First) > maxWide {
			t.Errorf("%d lines: %+v", lines, sum)
		}
		if text := fmt.Sprint(sum.Remarks(), sum.Nothing(), sum.Wide.String()); len(text) > 2000 || !utf8.ValidString(text) {
			t.Errorf("too long, or not UTF-8: %q", text)
		}
		var hosts []lookup.Host
		p := newParser(Config{Allow: allow}, func(e entry) {
			name := string(e.name)
			if h, ok := lookup.ParseHost(name); ok && len(hosts) < 8 {
				testkit.Equal(t, "a name that is emitted", name, h.String())
				hosts = append(hosts, h)
				if h, ok := lookup.ParseHost("x." + name); ok && !isIP(name) {
					hosts = append(hosts, h)
				}
			} else if !ok && name != "" {
				t.Errorf("%q is emitted and no host", name)
			}
		})
		err = eachLine(bytes.NewReader(raw), nil, func(_ int, line []byte, long bool) {
			if !long {
				p.line(line)
			}
		})
		testkit.Equal(t, "it seems to be "+sum.Seems, err != nil, sum.Seems != "")
		for _, h := range hosts {
			act, depth := c.match(h, then)
			line, text, ok, err := find(bytes.NewReader(raw), Config{Allow: allow}, h, "", then)
			if err != nil || ok != (act != none) || depth > 127 {
				t.Errorf("%s: the set says %d at %d, the lines say %v %q", h, act, depth, ok, text)
			}
			if !ok {
				continue
			}
			entry := h.String()
			for n := labels(entry); n > depth; n-- {
				_, entry, _ = strings.Cut(entry, ".")
			}
			if quick, quickText, _, err := find(bytes.NewReader(raw), Config{Allow: allow}, h, entry, then); err != nil || quick != line || quickText != text {
				t.Errorf("%s by %q: line %d %q, without skipping %d %q", h, entry, quick, quickText, line, text)
			}
		}
	})
}

// parser.name must agree with lookup.ParseHost.
func FuzzName(f *testing.F) {
	for _, text := range []string{"Example.com", "a..b", ".a", "a.", "192.0.2.1", "0x7f.1", "a.1b", "a-_b", "BÜCHER.example", "::1", "[::1]", "%61.example"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxNameText || strings.Contains(text, ":") {
			return // name refuses long texts and takes addresses without brackets; ParseHost does not
		}
		got, ok := new(parser).name([]byte(text))
		h, parsed := lookup.ParseHost(text)
		if ok && (!parsed || string(got) != h.String()) {
			t.Errorf("%q is %q, to lookup %q", text, got, h)
		}
	})
}

// TestReadingIsLinear reads the worst known lines at the greatest length.
func TestReadingIsLinear(t *testing.T) {
	testkit.Long(t)
	const lines = 200
	var all strings.Builder
	for r := range 1500 {
		all.WriteRune('一' + rune(r)) // an international label of distinct letters
	}
	for _, part := range []string{"a.", "%25", "#", ";", "x#;", " ; until", "://", "||", "@", "$", "(", ")", "é", all.String()[:900], all.String(), "\t", "a ", ".", "*.", "1.", ":", "0.0.0.0 a ", "$ORIGIN a ", "a CNAME . ", "address=/", "/a", "local-zone: ", "|", ",x"} {
		for _, head := range []string{"", "a", "||", "http://", "0.0.0.0 ", "$ORIGIN ", "@ SOA ( ", "address=/a/", "||a^$"} {
			line := head + strings.Repeat(part, maxLine/len(part)+1)
			text := strings.Repeat(line[:min(len(line), maxLine)]+"\n", lines)
			start := time.Now()
			_, err := read(strings.NewReader(text), Config{Allow: true}, 0)
			must(t, err)
			testkit.Between(t, fmt.Sprintf("%.20q: a line takes", line), time.Since(start)/lines, 0, 20*time.Millisecond)
		}
	}
	// A name in a zone is as long as its origin, so the origin must not grow.
	text := "$ORIGIN a.\n" + strings.Repeat("$ORIGIN "+strings.Repeat("a", 200)+"\n", 10_000) + "a CNAME .\n"
	start := time.Now()
	_, err := read(strings.NewReader(text), Config{}, 0)
	must(t, err)
	testkit.Between(t, "origins take", time.Since(start), 0, time.Second)
}
