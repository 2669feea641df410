package ownlist

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// FuzzRead checks that the parser never panics, that it emits canonical hosts, that the
// content finds all of them, and that FindLine agrees with the content.
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
		if text := fmt.Sprint(sum.Remarks(), sum.Nothing(), sum.WideRemark()); len(text) > 2000 || !utf8.ValidString(text) {
			t.Errorf("too long, or not UTF-8: %q", text)
		}
		var hosts []lookup.Host
		p := newParser(Config{Allow: allow}, func(e entry) {
			name := string(e.name)
			if h, ok := lookup.ParseHost(name); ok && len(hosts) < 8 {
				if h.String() != name {
					t.Errorf("%q is emitted, canonical is %q", name, h)
				}
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
		if (err != nil) != (sum.Seems != "") {
			t.Errorf("%v, but it seems %q", err, sum.Seems)
		}
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
			if took := time.Since(start) / lines; took > 20*time.Millisecond {
				t.Errorf("%.20q: %v a line", line, took)
			} else if took > time.Millisecond {
				t.Logf("%.20q: %v a line", line, took)
			}
		}
	}
	// A name in a zone is as long as its origin, so the origin must not grow.
	text := "$ORIGIN a.\n" + strings.Repeat("$ORIGIN "+strings.Repeat("a", 200)+"\n", 10_000) + "a CNAME .\n"
	start := time.Now()
	_, err := read(strings.NewReader(text), Config{}, 0)
	must(t, err)
	if took := time.Since(start); took > time.Second {
		t.Errorf("origins take %v", took)
	}
}
