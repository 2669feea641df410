package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// knocker is the folder that a process started by a test asks in; see TestMain.
const knocker = "SAFEBROWSING_TEST_KNOCK"

// TestMain lets the test binary be a caller of another user.
func TestMain(m *testing.M) {
	if folder := os.Getenv(knocker); folder != "" {
		c := Command{Word: "status", Tool: "x", Folders: []string{folder}}
		os.Exit(say.Exit(os.Stdout, "x", c.Run(context.Background(), os.Stdout)))
	}
	os.Exit(m.Run())
}

// protecting is a server that protects.
type protecting struct{ changes atomic.Int32 } // of own lists

func (*protecting) Report() status.Report {
	r := status.Report{At: time.Now(), Services: []status.Service{{Title: "Safe Browsing v5"}}, Blocks: []status.Block{{Zones: "."}}, Names: []status.Blocked{}}
	r.Judge()
	return r
}

func (*protecting) WhyName(_ context.Context, name string, _ bool) (status.Why, error) {
	if _, ok := status.HostOf(name); !ok {
		return status.Why{}, errors.New("no host")
	}
	return status.Why{Name: name, Verdict: status.VerdictPasses}, nil
}

func (*protecting) Pause(context.Context, string, time.Duration, bool) ([]block.Pause, error) {
	return nil, nil
}

func (p *protecting) Change(context.Context, block.Change) (block.Changed, error) {
	p.changes.Add(1)
	return block.Changed{}, nil
}

func (*protecting) Listings(_ context.Context, q block.Question) (block.Listings, error) {
	return block.Listings{Zones: ".", PerSearch: len(q.Prefixes), Listed: []block.Listed{}, Own: []block.OwnSay{}}, nil
}

func (*protecting) Confirm(context.Context, block.Question) (block.Confirmed, error) {
	return block.Confirmed{Answers: []block.PrefixAnswer{}}, nil
}

// opened is a door in a folder. Call closed once, or never.
func opened(t *testing.T, d *Doors, folder string) (path string, closed func()) {
	t.Helper()
	path, release, err := d.Open(folder, new(protecting))
	testkit.Must(t, err)
	t.Cleanup(release)
	return path, release
}

// asking is a client of a server that protects.
func asking(t *testing.T) *Client {
	t.Helper()
	folder := t.TempDir()
	opened(t, new(Doors), folder)
	client, err := Find(t.Context(), []string{folder})
	testkit.Must(t, err)
	return client
}

func wantOpen(t *testing.T, path string, want bool) {
	t.Helper()
	r, err := Report(t.Context(), []string{filepath.Dir(path)})
	testkit.Equal(t, fmt.Sprint(path, " ", err), err == nil && r.Headline == "Protected by Safe Browsing v5", want)
}

func TestADoorIsForItsOwnerAndGroupAndEndsWithItsLastHolder(t *testing.T) {
	d, folder := new(Doors), filepath.Join(t.TempDir(), "db")
	path, first := opened(t, d, folder)
	again, second := opened(t, d, folder)
	info, err := os.Lstat(path)
	testkit.Must(t, err)
	testkit.Equal(t, "mode", info.Mode(), os.ModeSocket|0o660)
	testkit.Equal(t, "the doors", []string{filepath.Base(path), again}, []string{"control.sock", ""})
	first()
	first() // counts once
	wantOpen(t, path, true)
	second()
	wantOpen(t, path, false)
	all, err := os.ReadDir(folder)
	testkit.Must(t, err)
	testkit.Equal(t, "what is left", len(all), 0)
}

// Two processes with one folder have a door each, and a door that was left behind has a new owner.
func TestEachProcessHasItsDoorAndOneLeftBehindIsReplaced(t *testing.T) {
	folder := t.TempDir()
	first, close1 := opened(t, new(Doors), folder)
	second, close2 := opened(t, new(Doors), folder)
	close1()
	wantOpen(t, second, true)
	close2()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	testkit.Must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close() // as a process that was killed
	wantOpen(t, first, false)
	third, _ := opened(t, new(Doors), folder)
	testkit.Equal(t, "door", third, first)
	wantOpen(t, third, true)
}

// What is not a socket is not ours: it stays.
func TestAFileInThePlaceOfADoorStays(t *testing.T) {
	folder := t.TempDir()
	file := testkit.Write(t, folder, "control.sock", "precious\n")
	path, _ := opened(t, new(Doors), folder)
	testkit.Equal(t, "the file", testkit.Read(t, file), "precious\n")
	wantOpen(t, path, true)
}

func TestAFolderWithALongPathHasADoor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	path, _ := opened(t, new(Doors), filepath.Join(t.TempDir(), strings.Repeat("long", 40)))
	wantOpen(t, path, true)
}

func TestACallerWithoutRightsIsToldWhatToDo(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can be somebody else")
	}
	folder, err := os.MkdirTemp("", "door") // others may not enter the test's folder
	testkit.Must(t, err)
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "program")
	text, err := os.ReadFile(os.Args[0])
	testkit.Must(t, err)
	testkit.Must(t, errors.Join(os.WriteFile(program, text, 0o755), os.Chmod(program, 0o755), os.Chmod(folder, 0o755)))
	path, _ := opened(t, new(Doors), folder)
	ask := func(status int, says, folder string, user uint32, groups ...uint32) {
		t.Helper()
		c := exec.CommandContext(t.Context(), program)
		c.Env, c.Dir = []string{knocker + "=" + folder}, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: groups}}
		out, _ := c.CombinedOutput()
		testkit.WantParts(t, string(out), says)
		testkit.Equal(t, "status", c.ProcessState.ExitCode(), status)
	}
	ask(2, "you may not ask the server at "+path+": use sudo, or be in the group", folder, 65534)
	testkit.Must(t, os.Chown(path, 0, 4242))
	ask(0, "Protected by Safe Browsing v5", folder, 65534, 4242)
	ask(1, "CoreDNS does not run", t.TempDir(), 0)
}

func TestACallThatChangesSomethingIsLoggedWithWhoAsked(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel does not tell who asks")
	}
	lines := testkit.Capture(t)
	client := asking(t)
	var v any
	_, err := client.Post(t.Context(), "/pause", order{For: "10m", Zone: "a\n[ERROR] forged"}, &v)
	testkit.Must(t, err)
	testkit.WantParts(t, lines.Only(t, "asked over the control socket for pause"), "[INFO]", fmt.Sprintf("(uid %d)", os.Getuid()), `"for":"10m"`, `\n[ERROR] forged`)
	_, err = client.Get(t.Context(), "/status", nil, &v) // to read is not logged
	testkit.Must(t, err)
	lines.Only(t, "control socket")
}

// A question about prefixes is longer than a change may be, and changes nothing.
func TestAQuestionAboutManyPrefixesIsAnsweredAndNotLogged(t *testing.T) {
	lines := testkit.Capture(t)
	client := asking(t)
	q := block.Question{Prefixes: make([]byte, 4*block.MaxPrefixes)}
	for range block.MaxHosts {
		q.Hosts = append(q.Hosts, strings.Repeat("a", 253))
	}
	l, err := client.Listings(t.Context(), q)
	testkit.Must(t, err)
	testkit.Equal(t, "prefixes", l.PerSearch, len(q.Prefixes))
	_, err = client.Confirm(t.Context(), block.Question{})
	testkit.Must(t, err)
	testkit.Equal(t, "the log", lines.About("control socket"), nil)
}

// send writes bytes to a door and returns what comes back within a time.
func send(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(12 * time.Second))
	_, _ = io.WriteString(conn, text) // it may close before it has read all
	got, _ := io.ReadAll(conn)
	return string(got)
}

func TestHostileInputIsRefused(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	path, _ := opened(t, new(Doors), t.TempDir())
	post := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" }
	var sending sync.WaitGroup // some are waited for, at the same time
	for name, tc := range map[string]struct{ send, want string }{
		"a huge body":            {post("/allow", `{"name":"`+strings.Repeat("a", 1<<20)+`"}`), "400 Bad Request"},
		"a body that says more":  {post("/allow", `{"name":"x.example","key":"?"}`), "400 Bad Request"},
		"bad JSON":               {post("/pause", `{"for":`), "400 Bad Request"},
		"another type":           {post("/pause", `{"for":[["10m"]]}`), "400 Bad Request"},
		"a deep one":             {post("/pause", strings.Repeat("[", 4000)), "400 Bad Request"},
		"a name with a newline":  {post("/allow", `{"name":"a\nallow *.example"}`), "400 Bad Request"},
		"a name with an escape":  {post("/block", `{"name":"a\u001b[2J.example"}`), ""},
		"a public suffix":        {post("/allow", `{"name":"com"}`), "400 Bad Request"},
		"an end in the past":     {post("/allow", `{"name":"x.example","until":"2020-01-01T00:00:00Z"}`), "400 Bad Request"},
		"a pause for ever":       {post("/pause", `{"for":"100000h"}`), "400 Bad Request"},
		"a pause of no time":     {post("/pause", `{}`), "400 Bad Request"},
		"a huge question":        {post("/listed", `{"prefixes":"`+strings.Repeat("A", 1<<20)+`"}`), "400 Bad Request"},
		"no prefixes":            {post("/confirm", `{"prefixes":"?"}`), "400 Bad Request"},
		"a question by GET":      {get("/confirm"), "405 Method Not Allowed"},
		"no name":                {get("/why"), "400 Bad Request"},
		"a name of 100 kB":       {get("/why?name=" + strings.Repeat("a", 100_000)), "431 Request Header Fields Too Large"},
		"bytes in a name":        {get("/why?name=%00%ff%1b%5d"), ""},
		"a change by GET":        {get("/pause"), "405 Method Not Allowed"},
		"another path":           {get("/../../etc/passwd"), ""},
		"no HTTP":                {"\x16\x03\x01 hello\r\n\r\n", "400 Bad Request"},
		"a proxy":                {"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		"headers without an end": {"GET /status HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 10_000), ""},
		"a length that is a lie": {"POST /pause HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}", ""},
	} {
		sending.Go(func() {
			got := send(t, path, tc.send)
			if first, _, _ := strings.Cut(got, "\r\n"); !strings.Contains(first, tc.want) || strings.Contains(got, "\x1b") || strings.Contains(first, "500") {
				t.Errorf("%s: got %.200q, want %s", name, got, tc.want)
			}
			testkit.WantParts(t, send(t, path, get("/status")), `"state":"protected"`)
		})
	}
	sending.Wait()
	for _, line := range lines.About("") {
		if strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\n\x1b") {
			t.Errorf("a line of the log is forged: %q", line)
		}
	}
}

// A pause of a name would be one of the whole network.
func TestACallRefusesWhatItWouldNotHeed(t *testing.T) {
	for _, call := range []struct{ path, body string }{
		{"/pause", `{"name":"x.example","for":"10m"}`},
		{"/pause", `{"until":"2099-01-01T00:00:00Z","for":"10m"}`},
		{"/resume", `{"name":"x.example"}`},
		{"/pause", `{"for":"10m","remove":true}`},
		{"/allow", `{"name":"x.example","zone":"example.org"}`},
		{"/block", `{"name":"x.example","keep":true}`},
	} {
		w := httptest.NewRecorder()
		handler(new(protecting)).ServeHTTP(w, httptest.NewRequest("POST", call.path, strings.NewReader(call.body)))
		testkit.Equal(t, call, w.Code, http.StatusBadRequest)
	}
}

// Slow callers and very many of them take their places only, for a while, and never a query's.
func TestManyConnectionsAreBounded(t *testing.T) {
	testkit.Long(t)
	folder := t.TempDir()
	path, _ := opened(t, new(Doors), folder)
	before := runtime.NumGoroutine()
	held, most := 0, 0
	for n := range 10_000 {
		conn, err := net.Dial("unix", path)
		if err != nil { // the kernel has enough of them
			continue
		}
		if held++; held <= 200 { // as slow as can be
			_, _ = io.WriteString(conn, "G")
			defer conn.Close()
		} else {
			conn.Close()
		}
		if n%500 == 0 {
			most = max(most, runtime.NumGoroutine()-before)
		}
	}
	testkit.Between(t, "goroutines that serve 10,000 connections", most, 0, 3*maxConnections)
	begun := time.Now()
	testkit.Until(t, "the door to answer again", func() bool {
		_, err := Report(t.Context(), []string{folder})
		return err == nil
	})
	testkit.Between(t, "how long slow callers kept the door", time.Since(begun), 0, 3*headerTimeout)
}

// No value of a call has a field for a secret, and what looks like one is masked.
func TestWhatLooksLikeAKeyIsMasked(t *testing.T) {
	var v any
	text, err := asking(t).Get(t.Context(), "/why", url.Values{"name": {testkit.Key + ".example"}}, &v) // valid JSON
	testkit.Must(t, err)
	testkit.Equal(t, string(text), testkit.Leaks(string(text), testkit.Key), false)
}

// serviceManager listens where NOTIFY_SOCKET says. hears fails unless the next message is text.
func serviceManager(t *testing.T) (hears func(text string)) {
	t.Helper()
	path := os.Getenv("NOTIFY_SOCKET")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return func(text string) {
		t.Helper()
		buffer := make([]byte, 1000)
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := conn.Read(buffer)
		if got := string(buffer[:n]); err != nil || got != text {
			t.Fatalf("The service manager heard %q, %v; expected %q", got, err, text)
		}
	}
}

// telling tells until the result is called, which waits for the end, and tells of that.
func telling(t *testing.T, report func() status.Report) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var teller sync.WaitGroup
	teller.Go(func() { tell(ctx, report, time.Millisecond) })
	return func() {
		cancel()
		teller.Wait()
		TellManagerEnd()
	}
}

func TestTheServiceManagerIsToldHeadlines(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "notify"))
	hears := serviceManager(t)
	var headline atomic.Value
	headline.Store("NOT protected")
	reported, held := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(reported) })
	end := telling(t, func() status.Report {
		first()
		<-held
		return status.Report{Headline: headline.Load().(string)}
	})
	hears("READY=1") // although no report is there yet
	<-reported
	close(held)
	hears("READY=1\nSTATUS=NOT protected")
	headline.Store("Protected by Safe Browsing")
	hears("READY=1\nSTATUS=Protected by Safe Browsing") // and in between nothing, though it was looked at often
	end()
	hears("STOPPING=1")
}

func TestAServiceManagerThatComesLateIsToldAllTheSame(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "notify"))
	logged := testkit.Capture(t)
	end := telling(t, func() status.Report { return status.Report{Headline: "Protected"} })
	testkit.Until(t, "the warning", func() bool { return len(logged.About("cannot be told that CoreDNS serves")) > 0 })
	hears := serviceManager(t)
	hears("READY=1\nSTATUS=Protected")
	end()
	hears("STOPPING=1")
}

func TestNoListIsChangedUnlessAllNamesAreHosts(t *testing.T) {
	for _, test := range []struct {
		names   []string
		changes int32
	}{{[]string{"a.example", "b.example"}, 2}, {[]string{"a.example", "b.example", "c..example"}, 0}} {
		folder, s := filepath.Join(t.TempDir(), "db"), new(protecting)
		_, closed, err := new(Doors).Open(folder, s)
		testkit.Must(t, err)
		t.Cleanup(closed)
		c := Command{Word: "allow", Tool: "x", Names: test.names, Folders: []string{folder}}
		err = c.Run(t.Context(), io.Discard)
		testkit.Equal(t, fmt.Sprint("changes: ", err), s.changes.Load(), test.changes)
		testkit.Equal(t, "no error", err == nil, test.changes > 0)
	}
}

func TestWhatTakesNoNamesRefusesThem(t *testing.T) {
	folder := t.TempDir()
	opened(t, new(Doors), folder)
	for _, word := range []string{"status", "lists", "blocked", "resume"} {
		c := Command{Word: word, Tool: "x", Names: []string{"evil.example"}, Folders: []string{folder}}
		testkit.WantError(t, c.Run(t.Context(), io.Discard), word+" takes no ")
	}
}

func TestEachFlagOfACommandLineIsHeeded(t *testing.T) {
	folders := block.Beside("/db")
	for line, want := range map[string]Command{
		"status -json":                              {JSON: true},
		"why a.example -confirm b.example":          {Names: []string{"a.example", "b.example"}, Confirm: true},
		"allow -remove -for 1h a.example -until 2h": {Names: []string{"a.example"}, Remove: true, For: "1h", Until: "2h"},
		"block a.example -remove":                   {Names: []string{"a.example"}, Remove: true},
		"pause 10m -block example.org -keep":        {Names: []string{"10m"}, Zone: "example.org", Keep: true},
		"resume -block example.org":                 {Zone: "example.org"},
	} {
		args := append(strings.Fields(line), "-db", "/db")
		got, err := parse("x", args)
		testkit.Must(t, err)
		want.Word, want.Tool, want.Folders = args[0], "x", folders
		testkit.Equal(t, line, *got, want)
	}
}

// There may be credentials and no key, and the check of the package's unit before a reload finds them.
func TestCredentialsOfAPackageAreFoundWithoutAKey(t *testing.T) {
	for corefile, want := range map[string]string{packageFolder + "/Corefile": packageFolder, t.TempDir() + "/Corefile": ""} {
		t.Setenv("CREDENTIALS_DIRECTORY", "")
		UseCredential(corefile)
		testkit.Equal(t, corefile, os.Getenv("CREDENTIALS_DIRECTORY"), want)
	}
}

// Another user may put a Corefile into a folder of theirs, or one like /tmp, which names a server that gets root's key.
func TestRootIsLedToNoCorefileOfAnotherUser(t *testing.T) {
	defer func(before []string) { corefiles = before }(corefiles)
	corefiles = []string{"Corefile"}
	root := os.Geteuid() == 0
	for _, test := range []struct {
		folder, file int // whose it is
		mode         os.FileMode
		sudo         string // who is root by it
		found        bool
	}{
		{0, 0, 0o755, "", true},
		{0, 0, 0o777 | os.ModeSticky, "", false},
		{1000, 1000, 0o755, "1000", true},
		{1000, 0, 0o755, "1001", false},
		{0, 1000, 0o755, "", false},
	} {
		t.Chdir(t.TempDir())
		t.Setenv("SUDO_UID", test.sudo)
		testkit.Must(t, os.WriteFile("Corefile", nil, 0o644))
		if root {
			testkit.Must(t, errors.Join(os.Chown(".", test.folder, 0), os.Chown("Corefile", test.file, 0)))
		}
		testkit.Must(t, os.Chmod(".", test.mode))
		testkit.Equal(t, test, Corefile() != "", test.found || !root)
	}
}
