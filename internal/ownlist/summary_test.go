package ownlist

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestRemarksSayWhatIsNotUsed(t *testing.T) {
	ended := time.Now().AddDate(-1, 0, 0).Format(time.DateOnly)
	tests := []struct {
		name, text string
		allow      bool
		want       []string
	}{
		{"nothing to say", "a.example\n# x\n0.0.0.0 b.example\nc.example CNAME .\n", false, nil},
		{"one line", "a.example\n\n/ads?/\n", false, []string{"1 line is not supported (1 regular expression, first at line 3)"}},
		{"several kinds", strings.Join([]string{
			"/ads?/", "/x/$client=a", "||a.example^$client=b", "||b.example^$important,~client=b,x", "||c.example^$badfilter", "||d*.example^",
			"http://a.example/x", "a.example##.x", "server=/a.example/#", "local-data: \"x\"", "a.example TXT x", "b.example txt x", "1.rpz-ip CNAME .", "$INCLUDE x",
		}, "\n"), false, []string{"14 lines are not supported (2 regular expressions, first at line 1; 2 with $client, first at line 3; 1 with $badfilter, first at line 5; " +
			"1 pattern for a part of a name, first at line 6; 1 URL with a path or a port, first at line 7; 1 rule for parts of a page, first at line 8; " +
			"1 dnsmasq setting, first at line 9; 1 unbound setting, first at line 10; 2 TXT records, first at line 11; 1 with rpz-ip, first at line 13; 1 with $INCLUDE, first at line 14)"}},
		{"an option that is none", "||a.example^$" + strings.Repeat("x", 50) + "\n||a.example^$\x07", false, []string{"2 lines are not supported (2 lines of other kinds, first at line 1)"}},
		{"another address", "192.168.1.10 nas.home.arpa nas\n10.0.0.1 router", false, []string{
			`2 lines have an address other than 0.0.0.0, 127.0.0.1 or the sinkhole and block nothing (first at line 1: "192.168.1.10 nas.home.arpa nas")`}},
		{"records of RPZ", "a.example A 192.0.2.1\nb.example CNAME garden.example.", false, []string{
			"2 records with local data are not sent, but their names are blocked (first at line 1)"}},
		{"no entries", "a.example\na b c\n<p>\n", false, []string{`2 lines are not list entries (first at line 2: "a b c")`}},
		{"ended in part", "||a.example^ # until " + ended + "\n*.a.example # until 2099-01-31\n" +
			"||b.example^ # until " + ended + "\nhttp://b.example/ # until 2099-01-31\n", true, nil},
		{"ended", "a.example # until " + ended + "\nb.example # until " + ended + "\nb.example\n", true, []string{"1 entry has ended"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := listOf(t, tt.text, tt.allow)
			testkit.Equal(t, "remarks", f.State().Remarks(), tt.want)
		})
	}
}

func TestKindsOfLinesAreBounded(t *testing.T) {
	var text strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		text.WriteString("||x.example^$" + string(c) + "\n")
	}
	_, sum := listOf(t, text.String(), false)
	last := sum.Unsupported[len(sum.Unsupported)-1]
	if len(sum.Unsupported) != maxKinds+1 || sum.NotSupported() != 26 || last.kind != kindOther || last.Count != 14 {
		t.Errorf("%d kinds, %d lines, the last is %+v", len(sum.Unsupported), sum.NotSupported(), last)
	}
}

func TestAListWithNothingInItSaysWhatItIs(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a name", "a.example", ""},
		{"empty", "", "is empty"},
		{"comments", "# a.example\n\n! x\n; y\n", "has only comments"},
		{"line feeds", "\n\n", "has only comments"},
		{"HTML", "\n<!DOCTYPE html>\n<html><body>\nForbidden\n</body></html>", "looks like an HTML page"},
		{"HTML with a byte order mark", "\ufeff<!DOCTYPE html>\n<html>\nForbidden\n</html>", "looks like an HTML page"},
		{"HTML without a type", "<html>\n404\nerror.example\n", "looks like an HTML page"},
		{"XML", "<?xml version=\"1.0\"?>\n<Error>\nAccessDenied\n", "looks like an HTML page"},
		{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\na.example\n", "is compressed (gzip)"},
		{"zip", "PK\x03\x04\x0a\x00\na.example\n", "is compressed (zip)"},
		{"bzip2", "BZh91AY&SY\x00\n", "is compressed (bzip2)"},
		{"a name like bzip2", "BZh9.example\n", ""},
		{"xz", "\xfd7zXZ\x00\x00\na.example\n", "is compressed (xz)"},
		{"UTF-16", "\xff\xfea\x00.\x00b\x00\n\x00", "is UTF-16"},
		{"UTF-16, big end first", "\xfe\xff\x00a\x00.\x00b\x00\n", "is UTF-16"},
		{"UTF-8 with a mark", "\ufeffa.example\n", ""},
		{"nothing but bad lines", "a b c\n", "has no usable line"},
		{"nothing but what is not supported", "/x/\n192.168.1.1 nas\n", "has no usable line"},
		{"prose about HTML", "# <html>\na.example\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, sum := listOf(t, tt.text, false)
			if got := sum.Nothing(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if _, found := f.Match(host(t, "forbidden"), then); found {
				t.Error("a word of a page is a name")
			}
		})
	}
	f, _ := listOf(t, "a.example # until 2020-01-01", true)
	if got := f.State().Nothing(); got != "has only entries that have ended" {
		t.Errorf("%q", got)
	}
	never := State{Fetched: true} // the log says why
	if got := never.Complaint(); got != "has not been fetched yet" {
		t.Errorf("%q", got)
	}
}

func TestEntriesAboutVeryManyNamesAreNamed(t *testing.T) {
	tests := []struct {
		line        string
		block, wide string // of a block and of an allow list
	}{
		{"example.com", "", ""},
		{"||example.com^", "", ""},
		{"||example.co.uk^", "", ""},
		{"||blogspot.com^", "", ""}, // a public suffix, but of somebody who sells none
		{"nas", "", ""},
		{".local", "", ""},
		{"||de^", "line 1 blocks the whole top-level domain de", "line 1 allows the whole top-level domain de"},
		{"||np^", "line 1 blocks the whole top-level domain np", "line 1 allows the whole top-level domain np"}, // names are sold below com.np and others
		{"||kawasaki.jp^", "line 1 blocks the whole public suffix kawasaki.jp", "line 1 allows the whole public suffix kawasaki.jp"},
		{"||city.kawasaki.jp^\n||x.com.np^", "", ""},
		{"*.net", "line 1 blocks the whole top-level domain net", "line 1 allows the whole top-level domain net"},
		{"@@||com^", "line 1 allows the whole top-level domain com", "line 1 allows the whole top-level domain com"},
		{"*.co.uk CNAME .", "line 1 blocks the whole public suffix co.uk", "line 1 allows the whole public suffix co.uk"},
		{"address=/aisai.aichi.jp/", "line 1 blocks the whole public suffix aisai.aichi.jp", "line 1 allows the whole public suffix aisai.aichi.jp"},
		{"||xn--p1ai^", "line 1 blocks the whole top-level domain xn--p1ai", "line 1 allows the whole top-level domain xn--p1ai"},
		{"com", "line 1 blocks the name com itself, but no name below it: to block these too, write .com", "line 1 allows the whole top-level domain com"},
		{"co.uk", "", "line 1 allows the whole public suffix co.uk"},
		{"* CNAME .", "line 1 blocks every name", "line 1 allows every name"},
		{"||a^\n||de^\n||net^\n||com^\n||org^\n||fr^\n||it^\n||es^", "line 2 blocks the whole top-level domain de; line 3 blocks the whole top-level domain net; " +
			"line 4 blocks the whole top-level domain com; line 5 blocks the whole top-level domain org; line 6 blocks the whole top-level domain fr; and 2 more lines", "*"},
	}
	for _, tt := range tests {
		for allow, want := range map[bool]string{false: tt.block, true: tt.wide} {
			_, sum := listOf(t, tt.line, allow)
			if got := sum.Wide.String(); got != want && want != "*" {
				t.Errorf("%s, allow list %v: %q, want %q", tt.line, allow, got, want)
			}
		}
	}
}

func TestAnswersOfListsAreKept(t *testing.T) {
	const list = `@ SOA a. b. 1 2 3 4 5
nx.example CNAME .
nodata.example CNAME *.
*.nodata.example CNAME rpz-drop.
drop.example CNAME rpz-drop.
local.example A 192.0.2.1
garden.example CNAME walled.example.
pass.example CNAME rpz-passthru.
*.rest.example CNAME *.
plain.example
twice.example CNAME *.
twice.example CNAME rpz-drop.
local-zone: "refused.example." always_refuse
local-zone: "denied.example." deny
local-zone: "null.example." always_null
local-zone: "empty.example." always_nodata
`
	f, _ := listOf(t, list, false)
	for name, want := range map[string]lookup.Response{
		"nx.example": lookup.NXDOMAIN, "nodata.example": lookup.NODATA, "x.nodata.example": lookup.NoAnswer, "drop.example": lookup.NoAnswer,
		"local.example": lookup.NXDOMAIN, "garden.example": lookup.NXDOMAIN, "a.b.rest.example": lookup.NODATA, "plain.example": lookup.NXDOMAIN,
		"twice.example": lookup.NoAnswer, "refused.example": lookup.Refused, "x.denied.example": lookup.NoAnswer, "null.example": lookup.NXDOMAIN, "x.empty.example": lookup.NODATA,
	} {
		if m, ok := f.Match(host(t, name), then); !ok || m.Allow || m.Response != want {
			t.Errorf("%s: %+v %v, want answer %d", name, m, ok, want)
		}
	}
	if m, ok := f.Match(host(t, "pass.example"), then); !ok || !m.Allow || m.Response != lookup.NXDOMAIN {
		t.Errorf("passthru: %+v, %v", m, ok)
	}
	if n := len(f.content.Load().responses); n != 7 {
		t.Errorf("%d names are in the map of answers, want only those that are answered in a way of their own", n)
	}
	if m, _ := f.Match(lookup.FromQname(`x\.y.nodata.example.`), then); m.Response != lookup.NoAnswer {
		t.Errorf("a name with a label that no URL can hold is below the others: %+v", m)
	}
	every, _ := listOf(t, "* CNAME *.", false)
	if m, _ := every.Match(host(t, "x.example"), then); m.Response != lookup.NODATA {
		t.Errorf("every name: %+v", m)
	}
	allowed, _ := listOf(t, list, true)
	if m, ok := allowed.Match(host(t, "drop.example"), then); !ok || !m.Allow || m.Response != lookup.NXDOMAIN {
		t.Errorf("in an allow list: %+v, %v", m, ok)
	}
}

// The heads come from lists that are in use.
func TestTheHeadOfAListSaysWhereMistakesAreReported(t *testing.T) {
	for name, tc := range map[string]struct{ head, want string }{
		"HaGeZi":           {"# Title: T\n# Homepage: https://github.com/hagezi/dns-blocklists\n# License: https://example.com/LICENSE\n# Issues: https://github.com/hagezi/dns-blocklists/issues\n# Expires: 1 day\n", "https://github.com/hagezi/dns-blocklists/issues"},
		"AdGuard":          {"! Title: AdGuard DNS filter\n! Description: x\n! Homepage: https://github.com/AdguardTeam/AdGuardSDNSFilter\n", "https://github.com/AdguardTeam/AdGuardSDNSFilter"},
		"EasyList":         {"[Adblock Plus 2.0]\n! Homepage: https://easylist.to/\n! GitHub issues: https://github.com/easylist/easylist/issues\n", "https://github.com/easylist/easylist/issues"},
		"StevenBlack":      {"# Title: StevenBlack/hosts\n#\n# Project home page: https://github.com/StevenBlack/hosts\n", "https://github.com/StevenBlack/hosts"},
		"RPZ":              {"; Issues: http://lists.example/bugs\n", "http://lists.example/bugs"},
		"none":             {"# a list of mine\n", ""},
		"a sentence":       {"# Issues are reported by mail: bugs@example.com\n", ""},
		"no URL":           {"# Issues: see below\n", ""},
		"script":           {"# Issues: javascript:alert(1)\n", ""},
		"file":             {"# Issues: file:///etc/shadow\n", ""},
		"without a host":   {"# Issues: https:///x\n", ""},
		"with a password":  {"# Issues: https://me:secret@example.com/\n", ""},
		"with a query":     {"# Issues: https://example.com/?token=secret\n", ""},
		"markup":           {"# Issues: https://example.com/\"><script>\n", ""},
		"control":          {"# Issues: https://example.com/\x1b[31m\n", ""},
		"another script":   {"# Issues: https://exämple.com/\n", ""},
		"long":             {"# Issues: https://example.com/" + strings.Repeat("x", 200) + "\n", ""},
		"after the head":   {strings.Repeat("#\n", headLines) + "# Issues: https://example.com/\n", ""},
		"in a long line":   {"# Issues: https://example.com/ " + strings.Repeat("x", maxLine) + "\n", ""},
		"not in a comment": {"Issues: https://example.com/\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Write(t, t.TempDir(), "list.txt", tc.head+"blocked.example\n")
			f, err := Open(Config{Path: path, Name: "the list"}, func(Event) {})
			must(t, err)
			defer f.Close()
			other := Hosts("Corefile", nil)
			if got := Tracker([]*File{other, f}, f.State().Named); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			testkit.Equal(t, "another list", Tracker([]*File{other, f}, filepath.Base(path)), "")
		})
	}
}

// A list by URL that is something else, by a redirect or a mistake, is not quoted.
func TestNoLineOfAFetchedListIsQuoted(t *testing.T) {
	const list = "a.example\nS3CRET = yes, it is\n10.0.0.1 S3CRET-host\n"
	for _, fetched := range []bool{false, true} {
		c, err := read(strings.NewReader(list), Config{Fetched: fetched}, 0)
		must(t, err)
		remarks := strings.Join(c.summary.Remarks(), "; ")
		if strings.Contains(remarks, "S3CRET") == fetched || !strings.Contains(remarks, "first at line 2") || !strings.Contains(remarks, "first at line 3") {
			t.Errorf("fetched %v: %s", fetched, remarks)
		}
	}
}

// To allow by URL what is a whole suffix would end protection.
func TestAFetchedListHasNoWholeSuffixes(t *testing.T) {
	const list = "a.example.org\n.com\n||co.uk^\n@@||de^\n0.0.0.0 net\n"
	for _, tc := range []struct {
		c       Config
		entries int
		left    int
	}{
		{Config{}, 5, 0}, {Config{Fetched: true, Wide: true}, 5, 0}, {Config{Fetched: true}, 2, 3},
		{Config{Allow: true}, 5, 0}, {Config{Fetched: true, Allow: true}, 1, 4},
	} {
		c, err := read(strings.NewReader(list), tc.c, 0)
		must(t, err)
		if got := c.summary; got.Entries != tc.entries || got.LeftOut.Count() != tc.left {
			t.Errorf("%+v: %d entries, left out: %s; want %d and %d", tc.c, got.Entries, got.LeftOutRemark(), tc.entries, tc.left)
		}
	}
}
