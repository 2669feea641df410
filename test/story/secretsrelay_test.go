package story

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The other secrets of a relay: what its clients send, and what Redis asks for.
const (
	markedClient   = "client-MARKED-0123456789-abcdefghijklmn"
	markedPassword = "redis-MARKED-9876543210-zyxwvutsrqponm"
)

// The key of a relay, the key of its clients and the password of Redis are in nothing that a
// relay, Redis and a CoreDNS leave, and cross the network only where they belong.
func TestTheSecretsOfARelayStayWhereTheyBelong(t *testing.T) {
	testkit.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	w := newSecretWorld(t)
	w.startRelay()
	c := w.startClient()
	c.want("malware.example.net.", dns.RcodeNameError)
	c.want("later.example.net.", dns.RcodeSuccess) // Google refuses, with its key in its words
	w.relay.Line("status 403", time.Minute)

	w.kept.add("explain", []byte(explain(t, c.dns, "malware.example.net")))
	w.kept.addURL(t, "status page", "http://127.0.0.1:"+w.status+"/")
	w.kept.addURL(t, "metrics of the client", "http://127.0.0.1:"+w.metrics+"/metrics")
	w.kept.addURL(t, "metrics of the relay", "http://127.0.0.1:"+w.admin+"/metrics")
	w.kept.addURL(t, "health of the relay", "http://127.0.0.1:"+w.admin+"/healthz")
	for _, args := range [][]string{{"status", "-corefile", c.file}, {"status", "-json", "-corefile", c.file}, {"status", "-corefile", w.corefile},
		{"doctor", "-corefile", c.file}, {"doctor", "-corefile", w.corefile}, {"doctor", "-endpoint", w.endpoint}, {"lists", "-corefile", c.file}} {
		_, out := testkit.Run(t, w.programs["safebrowsing"], args...)
		w.kept.add("output of safebrowsing "+strings.Join(args[:2], " "), []byte(out))
	}
	w.kept.add("dump of Redis", w.dump())
	for who, p := range map[string]*testkit.Process{"relay": w.relay, "client": c.process} {
		w.kept.addProcess(t, p)
		p.Signal(syscall.SIGABRT) // prints the stacks of all goroutines
		p.Wait()
		testkit.WantParts(t, p.Output(), "goroutine 1 ")
		w.kept.add("log and stacks of the "+who, []byte(p.Output()))
	}
	w.kept.addFiles(t, w.dir)
	w.toRedis.addWithout(t, w.kept, regexp.MustCompile(`(?i)\$4\r\nAUTH\r\n(\$\d+\r\n[^\r\n]*\r\n){1,2}`), markedPassword)
	w.toRelay.addWithout(t, w.kept, regexp.MustCompile(`(?i)X-Goog-Api-Key: [^\r\n]*\r\n`), markedClient)
	for _, secret := range []string{markedKey, markedClient, markedPassword} {
		w.kept.wantNo(t, secret)
	}
}

// secretWorld has Google, Redis and a relay between them and a CoreDNS.
type secretWorld struct {
	t                      *testing.T
	kept                   *traces
	programs               map[string]string
	dir, secrets           string // folders
	endpoint, corefile     string // of the relay; the Corefile says what its flags say
	google                 string // its endpoint
	admin, metrics, status string // ports
	redisFolder            string
	redis                  *testkit.Redis
	toRedis, toRelay       *wire
	relay                  *testkit.Process
}

func newSecretWorld(t *testing.T) *secretWorld {
	w := &secretWorld{t: t, programs: programs(t), kept: new(traces), dir: t.TempDir(), secrets: t.TempDir(), redisFolder: t.TempDir(),
		admin: testkit.FreePort(t), metrics: testkit.FreePort(t), status: testkit.FreePort(t)}
	w.redis = testkit.StartRedis(t, "--requirepass", markedPassword, "--rdbcompression", "no", "--dir", w.redisFolder)
	w.redis.Password, w.toRedis = markedPassword, newWire(t, w.redis.Addr)
	for file, secret := range map[string]string{"key": markedKey, "client": markedClient, "password": markedPassword} {
		testkit.Write(t, w.secrets, file, secret+"\n")
	}
	w.google = keyInHeader(t, w.kept)
	w.corefile = testkit.Write(t, w.dir, "Corefile.relay", fmt.Sprintf(". {\n\tsafebrowsing {\n\t\tendpoint %s\n\t\tapi_key_file %s\n\t\tlists se-4b\n\t\tdb %s\n\t}\n}\n",
		w.google, filepath.Join(w.secrets, "key"), filepath.Join(w.dir, "relay")))
	return w
}

// fetch fetches lists, so that the program need not wait for its first contact.
func (w *secretWorld) fetch(corefile string) {
	w.t.Helper()
	status, out := testkit.Run(w.t, w.programs["safebrowsing"], "update", "-now", "-corefile", corefile)
	w.kept.add("output of safebrowsing update", []byte(out))
	if status != 0 {
		w.t.Fatalf("update ends with status %d: %s", status, out)
	}
}

func (w *secretWorld) startRelay() {
	w.t.Helper()
	w.fetch(w.corefile)
	address := testkit.FreeAddress(w.t, "127.0.0.1")
	w.endpoint = "http://" + address
	w.toRelay = newWire(w.t, address)
	w.relay = testkit.Start(w.t, w.programs["safebrowsing-relay"], "-endpoint", w.google, "-api-key-file", filepath.Join(w.secrets, "key"), "-lists", "se-4b", "-db", filepath.Join(w.dir, "relay"), "-listen", address, "-admin", "127.0.0.1:"+w.admin,
		"-client-key-file", filepath.Join(w.secrets, "client"), "-redis", "redis://"+w.toRedis.address, "-redis-password-file", filepath.Join(w.secrets, "password"))
	w.relay.Line("Corefile of each server", time.Minute)
	w.relay.Line("over Redis at", 5*time.Minute) // it tries again each half a minute, with little patience
}

func (w *secretWorld) startClient() *coreDNS {
	w.t.Helper()
	c := newCoreDNS(w.t, w.dir)
	c.configure("debug\n\tlog\n\terrors\n\tprometheus 127.0.0.1:"+w.metrics+"\n\t"+answering,
		"endpoint http://"+w.toRelay.address, "api_key_file "+filepath.Join(w.secrets, "client"), "lists se-4b", "db "+filepath.Join(w.dir, "db"),
		"status 127.0.0.1:"+w.status+" names", "confirm_timeout 10s", "log json", "explain")
	w.fetch(c.file)
	c.start()
	c.wantReady()
	return c
}

// dump returns the file with all that Redis has.
func (w *secretWorld) dump() []byte {
	w.t.Helper()
	testkit.Equal(w.t, "the answer of Redis", w.redis.Do("SAVE"), "+OK")
	raw := testkit.Read(w.t, filepath.Join(w.redisFolder, "dump.rdb"))
	testkit.WantParts(w.t, raw, "safebrowsing:1:")
	return []byte(raw)
}

// explain asks a CoreDNS why it decides as it does about a name.
func explain(t *testing.T, port, name string) string {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name+".why.safebrowsing.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	answer, err := dns.Exchange(m, "127.0.0.1:"+port)
	testkit.Must(t, err)
	return answer.String()
}

// wire passes connections on to a server and keeps what goes there and back. It is safe for concurrent use.
type wire struct {
	address string

	mu      sync.Mutex
	streams []*bytes.Buffer // one for each direction of each connection
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	w := &wire{address: l.Addr().String()}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			go w.pass(from, to)
			go w.pass(to, from)
		}
	}()
	return w
}

// pass copies one direction until it ends, then ends the connection.
func (w *wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	w.mu.Lock()
	stream := new(bytes.Buffer)
	w.streams = append(w.streams, stream)
	w.mu.Unlock()
	raw := make([]byte, 1<<16)
	for {
		n, err := from.Read(raw)
		w.mu.Lock()
		stream.Write(raw[:n])
		w.mu.Unlock()
		if _, sendErr := to.Write(raw[:n]); err != nil || sendErr != nil {
			return
		}
	}
}

// addWithout adds all that was kept but what place matches. The secret must have been there.
func (w *wire) addWithout(t *testing.T, kept *traces, place *regexp.Regexp, secret string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	found := 0
	for _, stream := range w.streams {
		rest := place.ReplaceAllFunc(stream.Bytes(), func(match []byte) []byte {
			found += bytes.Count(match, []byte(secret))
			return nil
		})
		kept.add("connections to "+w.address, rest)
	}
	if found == 0 {
		t.Errorf("%s does not go to %s", secret, w.address)
	}
}
