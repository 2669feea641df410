package story

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// markedKey is a key that nothing else looks like.
const markedKey = "AIzaMARKED0123456789-_abcdefghijklmnopq"

// traces are all that a run leaves, by where it is. It is safe for concurrent use.
type traces struct {
	mu  sync.Mutex
	all map[string]string
}

func newTraces() *traces { return &traces{all: make(map[string]string)} }

func (l *traces) add(where, raw string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[where] += raw
}

// wantNo fails if a secret of at least 35 characters is anywhere, in any usual spelling.
func (l *traces) wantNo(t *testing.T, secret string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	spellings := []string{secret, secret[4:20], hex.EncodeToString([]byte(secret))}
	for skip := range 3 { // base64 of a longer text depends on where in it the secret is
		inner := base64.RawStdEncoding.EncodeToString([]byte(secret[skip : skip+30]))
		spellings = append(spellings, inner, base64.RawURLEncoding.EncodeToString([]byte(secret[skip:skip+30])))
	}
	for where, raw := range l.all {
		if packed, err := gzip.NewReader(strings.NewReader(raw)); err == nil {
			unpacked, _ := io.ReadAll(packed)
			raw += string(unpacked)
		}
		for _, spelling := range spellings {
			if strings.Contains(raw, spelling) {
				t.Errorf("%s is in %s, as %s", secret, where, spelling)
			}
		}
		t.Logf("%s: %d bytes without %s", where, len(raw), secret)
	}
}

// keyInHeader starts a service with two phishing names, confirms one of them, and keeps every request but
// the header of the key. Searches after the first fail, and the answer repeats the key.
func keyInHeader(t *testing.T, kept *traces) string {
	google := serviceWith(t, "malware.example.net/", "later.example.net/")
	google.SetKey(markedKey)
	google.SetMinimumWait("", 30*time.Minute)
	var searches atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		testkit.Equal(t, r.Method+" "+r.URL.Path+": keys", r.Header["X-Goog-Api-Key"], []string{markedKey})
		rest := r.Clone(r.Context())
		rest.Header.Del("X-Goog-Api-Key")
		raw, err := httputil.DumpRequest(rest, true)
		testkit.Is(t, "a request", err, nil)
		kept.add("requests without the header of the key", string(raw))
		if strings.Contains(r.URL.Path, "hashes:search") && searches.Add(1) > 1 {
			w.Header().Set("Content-Type", "text/"+markedKey)
			http.Error(w, "API key "+markedKey+" is not valid", http.StatusForbidden)
			return
		}
		google.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func recordingUpstream(t *testing.T, kept *traces) string {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		raw := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(raw)
			if err != nil {
				return
			}
			kept.add("packets to the name server", string(raw[:n]))
			m := new(dns.Msg)
			if m.Unpack(raw[:n]) == nil {
				answer, _ := new(dns.Msg).SetReply(m).Pack()
				conn.WriteTo(answer, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// The key is in no log, error, metric, profile, stack, file, output or packet of a run but in the header that is made for it, even if
// the server repeats it. And a name from a client cannot forge a line of the log.
func TestTheKeyLeavesInItsHeaderOnly(t *testing.T) {
	testkit.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	programs := programs(t)
	kept, dir := newTraces(), t.TempDir()
	c := newCoreDNS(t, dir)
	db, block, keyFile := filepath.Join(dir, "db"), testkit.Write(t, dir, "block.txt", "||blocked.example^\n"), testkit.Write(t, t.TempDir(), "key", markedKey+"\n")
	metrics, pprof := testkit.FreePort(t), testkit.FreePort(t)
	c.configure("debug\n\tlog\n\terrors\n\tprometheus 127.0.0.1:"+metrics+"\n\tpprof 127.0.0.1:"+pprof+"\n\tforward . "+recordingUpstream(t, kept),
		"endpoint "+keyInHeader(t, kept), "api_key_file "+keyFile, "db "+db, "block "+block, "log", "explain")
	c.start()
	c.waitFor("List se-4b now has 2 entries", firstContact, "[INFO]")
	c.want("malware.example.net.", dns.RcodeNameError)
	c.want("later.example.net.", dns.RcodeSuccess) // the server refuses, with the key in its words
	c.waitFor("status 403", 20*time.Second)
	const forged = `\027\010ERROR\013forged\127\255\"%s.blocked.example.`
	c.want(forged, dns.RcodeNameError)
	c.want(forged[:len(forged)-len("blocked.example.")]+"clean.example.", dns.RcodeSuccess)

	for _, name := range []string{"later.example.net", "malware.example.net"} {
		kept.add("explain", explain(t, c.dns, name))
	}
	kept.addURL(t, "metrics", "http://127.0.0.1:"+metrics+"/metrics")
	for _, profile := range []string{"goroutine?debug=2", "goroutine", "heap", "heap?debug=1", "allocs", "block", "mutex", "threadcreate", "cmdline", "trace?seconds=0.2", "profile?seconds=1"} {
		kept.addURL(t, "profile "+profile, "http://127.0.0.1:"+pprof+"/debug/pprof/"+profile)
	}
	for _, args := range [][]string{{"doctor", "-corefile", c.file}, {"doctor", "-json", "-corefile", c.file}, {"lists", "-db", db}, {"status", "-json", "-db", db}, {"blocked", "-db", db}, {"why", "-corefile", c.file, "later.example.net"}, {"validate", c.file}} {
		_, out := testkit.Run(t, programs["safebrowsing"], args...)
		kept.add("output of safebrowsing "+args[0], out)
	}
	kept.addProcess(t, "process", c.process)
	said, _, _ := strings.Cut(c.process.Output(), "SIGABRT")
	testkit.WantParts(t, said, "forged")
	testkit.Equal(t, "control characters, and lines that a name began", regexp.MustCompile(`(?m)[^\n\t -~].*|^ERROR.*forged.*`).FindAllString(said, -1), nil)
	kept.addFiles(t, dir)
	kept.wantNo(t, markedKey)
	testkit.Between(t, "kinds of traces", len(kept.all), 20, 100)
}

func (l *traces) addURL(t *testing.T, where, url string) {
	t.Helper()
	r, err := http.Get(url)
	testkit.Must(t, err)
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || len(raw) == 0 {
		t.Fatalf("%s: %s, %d bytes, %v", url, r.Status, len(raw), err)
	}
	l.add(where, string(raw))
}

// addProcess adds what the system tells of a process, and what that has said when it has ended, with its stacks.
func (l *traces) addProcess(t *testing.T, who string, p *testkit.Process) {
	t.Helper()
	for _, of := range []string{"cmdline", "environ"} {
		l.add(who+", "+of, testkit.Read(t, fmt.Sprintf("/proc/%d/%s", p.Pid(), of)))
	}
	p.Signal(syscall.SIGABRT) // prints the stacks of all goroutines
	p.Wait()
	testkit.WantParts(t, p.Output(), "goroutine 1 ")
	l.add(who+", log and stacks", p.Output())
}

func (l *traces) addFiles(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() == fs.ModeSocket { // of the door: it holds nothing
			return err
		}
		raw, err := os.ReadFile(path)
		l.add("file "+d.Name(), path+string(raw))
		return err
	})
	testkit.Must(t, err)
}
