package say

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The secrets of this test. None of them is one: they are made here.
var (
	aKey   = "AIza" + strings.Repeat("aB3-_", 7)
	aToken = "ya29." + strings.Repeat("a0Bc_", 30)
)

func TestWhatLooksLikeASecretIsMasked(t *testing.T) {
	pem := "-----BEGIN PRIVATE " + "KEY-----\nMIIE\n-----END PRIVATE " + "KEY-----\n"
	for _, tc := range []struct{ text, want string }{
		{`unknown property "` + aKey + `"`, `unknown property "(the key)"`},
		{"open /x/" + aKey + ": no such file", "open /x/(the key): no such file"},
		{"SAFEBROWSING_API_KEY=" + aKey + "," + aKey, "SAFEBROWSING_API_KEY=(the key),(the key)"},
		{"https://h/?key=" + aKey + "&a=b", "https://h/?key=(the key)&a=b"},
		{"zone " + strings.ToLower(aKey) + ".", "zone (the key)."},
		{"cut off: " + aKey[:20], "cut off: (the key)"},
		{"open " + aToken + ": no", "open (the token): no"},
		{`{"private_key_id": "abc", "private_key": "` + strings.ReplaceAll(pem, "\n", `\n`) + `", "a": 1}`, `{"private_key_id": "(the secret)", "private_key": "(the secret)", "a": 1}`},
		{`{"text":"{\"private_key_id\":\"abc\",\"private_key\":\"a\\nb\"}"}`, `{"text":"{\"private_key_id\":\"(the secret)\",\"private_key\":\"(the secret)\"}"}`},
		{`{"private_key": "abc`, `{"private_key": "(the secret)`},
		{`{"private_key": "a b", "c": "d"}`, `{"private_key": "(the secret)", "c": "d"}`},
		{"x" + pem + "y", "x(the secret)\ny"},
		{"GOCSPX-" + strings.Repeat("aB", 10) + " and 1//" + strings.Repeat("0aB", 10), "(the secret) and (the token)"},
		{`received on idle HTTP channel starting with "a \"key\" of any form"; err=<nil>`, "received on idle HTTP channel starting with (what the server sent); err=<nil>"},
	} {
		testkit.Equal(t, tc.text, Masked(tc.text), tc.want)
		testkit.Equal(t, "masked twice", Masked(tc.want), tc.want)
		testkit.Equal(t, tc.text, HasSecret(tc.text), true)
	}
	for _, text := range []string{ // names of hosts are what this program is about: they stay readable
		"", "AIza", "aizawa-dental-clinic.example", "ya29.example.com", "1//2", "www.example.org is blocked (MALWARE, list mw-4b)",
		"https://lists.example.org/aizawa/new.txt", "-----BEGIN CERTIFICATE-----\nMIIE",
	} {
		testkit.Equal(t, "as it is", Masked(text), text)
	}
	line := strings.Repeat("www.example.org is blocked ", 5)
	testkit.Equal(t, "allocations", testing.AllocsPerRun(100, func() { Masked(line) }), 0)
	// A masked error is still the error that it was.
	err := MaskedError(fmt.Errorf("open %s: %w", aKey, fs.ErrNotExist))
	testkit.WantNone(t, err.Error(), aKey)
	testkit.Is(t, "the error", err, fs.ErrNotExist)
	plain := errors.New("plain")
	testkit.Equal(t, "plain, and no error, stay", [2]bool{MaskedError(plain) == plain, MaskedError(nil) == nil}, [2]bool{true, true})
}

// A client may ask for any name. What is masked in it ends with it: the JSON around it stays JSON, and who asked is told.
func TestWhatIsMaskedInANameEndsWithTheName(t *testing.T) {
	for _, name := range []string{
		`\"private_key\":\"x.malware.example.`, `\"private_key_id\":\"x\\.malware.example.`, `\"private_key\":\"\ \\\"x.malware.example.`,
	} {
		text, err := json.Marshal(map[string]string{"a": name, "b": "192.0.2.1"})
		testkit.Must(t, err)
		var got map[string]string
		testkit.Must(t, json.Unmarshal([]byte(Masked(string(text))), &got))
		testkit.Equal(t, Masked(string(text))+": what follows, and the name itself", []any{got["b"], got["a"] == name}, []any{"192.0.2.1", false})
		line := Masked("Blocked " + name + " A for 192.0.2.1")
		testkit.Equal(t, name+" became "+line+", which ends with the client", strings.HasSuffix(line, " for 192.0.2.1"), true)
	}
}

// What others have written, such as the name in a certificate, makes no line of its own, and moves nothing on a terminal.
func TestEachLineOfTheLogAndEachWriteIsMaskedAndALineIsOneLine(t *testing.T) {
	lines := testkit.Capture(t)
	l, text := NewLog(clog.NewWithPlugin(Plugin)), aKey+"\n[ERROR]\tb\x1b[2J\u202e\u009b\xff é"
	l.Info(text)
	l.Infof("%s", text)
	l.Warning(text)
	l.Warningf("%s", text)
	l.Errorf("%s", text)
	all, masked := lines.About(""), lines.About(": (the key); [ERROR] b%1B[2J%E2%80%AE%C2%9B%FF é\n")
	testkit.Equal(t, fmt.Sprintf("lines, and masked ones, of %q", all), [2]int{len(all), len(masked)}, [2]int{5, 5})
	lines.Forget()
	l.JSON(map[string]string{"a": aKey})
	testkit.Equal(t, "a line of JSON", lines.String(), `{"a":"(the key)"}`+"\n")
	lines.Forget()
	if l.Errorf("of Redis: %s", strings.Repeat("é", 500_000)); len(lines.String()) > maxLine+100 || !strings.HasSuffix(lines.String(), "é…\n") {
		t.Errorf("a line of %d bytes", len(lines.String()))
	}
	var b strings.Builder
	n, err := fmt.Fprintf(MaskedWriter{&b}, "a %s b", aKey)
	testkit.Equal(t, "written", fmt.Sprint(n-len(aKey), err, b.String()), "4 <nil>a (the key) b")
}

func TestSizesHaveAUnitThatAPersonReads(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 bytes", 999: "999 bytes", 1_000: "1.0 kB", 60_120: "60.1 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 104_857_600: "104.9 MB",
		81_496_600_000: "81.5 GB", 12_345_600_000_000: "12345.6 GB",
	} {
		testkit.Equal(t, n, Size(n), want)
	}
}

func TestWordCountsEditsAndOfEquallyNearWordsTheSameBeginningWins(t *testing.T) {
	options, lists := []string{"allow", "block", "protocol", "respond", "resolver", "ttl"}, []string{"mw-4b", "se-4b", "uws-4b"}
	for _, tc := range []struct {
		word  string
		known []string
		want  string
		edits int
	}{
		{"block", options, "block", 0}, {"BLOCK", options, "block", 0}, {"ttl", options, "ttl", 0},
		{"blok", options, "block", 1}, {"blockk", options, "block", 1}, {"blick", options, "block", 1}, {"blcok", options, "block", 1},
		{"resovlers", options, "resolver", 2}, {"protcoll", options, "protocol", 2},
		{"", options, "ttl", 3}, {"xyz", options, "ttl", 3},
		{"uw-4b", lists, "uws-4b", 1}, {"aa", []string{"ab", "ac"}, "ab", 1}, {"x", nil, "", 0},
	} {
		got, edits := Nearest(tc.word, tc.known)
		testkit.Equal(t, tc.word, []any{got, edits}, []any{tc.want, tc.edits})
	}
}

func TestATroubleIsSaidOnceAndItsEndOnce(t *testing.T) {
	var trouble Trouble
	full, broken := errors.New("full"), errors.New("broken")
	for i, step := range []struct {
		err          error
		began, ended bool
	}{
		{nil, false, false}, {full, true, false}, {full, false, false}, {broken, true, false}, {full, true, false},
		{nil, false, true}, {nil, false, false}, {full, true, false},
	} {
		began, ended := trouble.Note(step.err)
		got, want := [3]bool{began, ended, trouble.Lasts()}, [3]bool{step.began, step.ended, step.err != nil}
		testkit.Equal(t, fmt.Sprint(i, step.err, ": began, ended, lasts"), got, want)
	}
}

func TestAThingIsSaidOnceADay(t *testing.T) {
	var d Daily
	now := time.Date(2026, 11, 24, 23, 59, 0, 0, time.Local)
	for i, step := range []struct {
		what string
		at   time.Time
		want bool
	}{
		{"a.example", now, true}, {"A.Example", now, false}, {"b.example", now, true},
		{"a.example", now.Add(time.Minute), true}, {"a.example", now.Add(2 * time.Minute), false},
		{"b.example", now.Add(-24 * time.Hour), true}, // the clock was set back
	} {
		testkit.Equal(t, fmt.Sprint(i, step), d.First(step.what, step.at), step.want)
	}
	said := 0
	for i := range 3 * maxDaily {
		if d.First(fmt.Sprint(i), now) {
			said++
		}
	}
	testkit.Equal(t, "things said in a day", said, maxDaily)
}

func TestTheVersionIsThatOfTheTag(t *testing.T) {
	other := &debug.Module{Path: "github.com/coredns/coredns", Version: "v1.15.0"}
	for _, tc := range []struct {
		name, stamped string
		info          *debug.BuildInfo // nil: the program has none
		want          string
	}{
		{"a release", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, "1.2.3"},
		{"go install of a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}, "1.2.3"},
		{"a CoreDNS built by plugin.cfg", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, {Path: module, Version: "v1.2.3"}}}, "1.2.3"},
		{"a replaced module has the tag of none", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../x"}}}}, development},
		{"a checkout without a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20260101000000-0123456789ab+dirty"}}, development},
		{"a checkout without git", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, development},
		{"no build info", "", nil, development},
	} {
		testkit.Equal(t, tc.name, number(tc.stamped, func() (*debug.BuildInfo, bool) { return tc.info, tc.info != nil }), tc.want)
	}
}

// manager listens as a service manager does.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return conn
}

func TestNotifyTellsTheServiceManagerIfThereIsOne(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@" + filepath.Join(t.TempDir(), "abstract")} {
		conn := manager(t, name)
		testkit.Must(t, Notify("READY=1", "STATUS=Protected"))
		buffer := make([]byte, 100)
		n, err := conn.Read(buffer)
		testkit.Equal(t, name+" heard", []any{string(buffer[:n]), err}, []any{"READY=1\nSTATUS=Protected", nil})
	}
	t.Setenv("NOTIFY_SOCKET", "")
	testkit.Must(t, Notify("READY=1"))
	testkit.Equal(t, "there is a manager", Managed(), false)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	testkit.Is(t, "a socket that is not there", Notify("READY=1"), os.ErrNotExist)
}

// Unix keeps a few messages for a manager that hangs, and then makes the sender wait.
func TestNotifyDoesNotWaitForAServiceManagerThatHangs(t *testing.T) {
	testkit.Long(t)
	manager(t, filepath.Join(t.TempDir(), "notify"))
	for range 100_000 {
		if err := Notify("READY=1"); err != nil {
			testkit.Is(t, "a manager that hangs", err, os.ErrDeadlineExceeded)
			return
		}
	}
	t.Error("The manager has read nothing, and takes whatever is sent")
}
