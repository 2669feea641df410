package story

import (
	"cmp"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// daily is what must follow the line that answers a question of an ordinary day. test/README.md has the lines.
type daily struct {
	about  string   // the host that NAME stands for
	then   string   // what becomes of it: "passes" or "blocked"; "": nothing
	client string   // only the client with this address gets that; "": all do
	says   []string // is in the answer
}

// What is blocked at first is bad.example by the service, and the others by a list of the operator. The lines of
// questions that are not here cannot be run.
var dailyQuestions = map[string]daily{
	"Am I protected now?":                       {says: []string{"Protected by Safe Browsing v5 and own lists, since "}},
	"What was blocked today?":                   {says: []string{" names blocked, the last ", "Blocked  bad.example (se-4b (phishing)), ", "why: safebrowsing why bad.example"}},
	"Why is NAME blocked?":                      {about: "bad.example", says: []string{"bad.example is blocked", "List: se-4b (phishing)", "Confirmed by the server: ", "To let it pass: ", "Let it pass for an hour:  safebrowsing allow -for 1h bad.example"}},
	"Who asked for NAME, which is blocked?":     {about: "bad.example", says: []string{"asked by 127.0.0.1"}},
	"Who got NAME, which passes?":               {about: "fine.example.com", says: []string{"fine.example.com passes", "1 device (127.0.0.1) asked for it and got it, first at "}},
	"Are the lists fresh?":                      {says: []string{"1 phishing, ", "(fetched ", " ago)"}},
	"Which upstream is asked?":                  {says: []string{"ok       upstream  what passes is asked of 192.0.2.53, 192.0.2.54 for lan.example"}},
	"Let NAME pass for an hour":                 {about: "shop.example", then: "passes", says: []string{"shop.example: allowed until ", "with all names below it"}},
	"NAME is a mistake: let it pass for ever":   {about: "false.example", then: "passes", says: []string{"false.example: allowed"}},
	"Let NAME pass for my family only":          {about: "kids.example", then: "passes", client: "127.0.0.2", says: []string{"kids.example: allowed", "kids.txt, line "}},
	"Stop everything for ten minutes":           {about: "bad.example", then: "passes", says: []string{"Paused until "}},
	"Go on before they are over":                {about: "bad.example", then: "blocked", says: []string{"Nothing is paused"}},
	"What does it cost today?":                  {says: []string{"searches left today: at least ", " of 200", "US-$ of at most 10.00"}},
	"Is the key in order, and who may read it?": {says: []string{"ok       key       present"}},
}

// Each question of an ordinary day is answered by one command, whose words answer it and which does what it
// says. The table of test/README.md has the commands and how many letters they have; the figures of others are a record.
func TestDailyQuestions(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	testkit.SameDay(t)
	ours, paid := startDaily(t, ""), startDaily(t, "protocol webrisk\n\t\tbudget 200\n\t\t")
	for name, blocked := range map[string]bool{"bad.example": true, "fine.example.com": false} {
		testkit.Equal(t, name+" is blocked", ours.blocks(name, "127.0.0.1"), blocked)
	}
	answered := 0
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|]+) \\| `(sudo [^`]+)`: ([0-9]+)[, ]").FindAllStringSubmatch(testkit.Read(t, "../README.md"), -1) {
		asks, line := m[1], m[2]
		letters := utf8.RuneCountInString(strings.NewReplacer("NAME", "", "FILE", "").Replace(line))
		testkit.Equal(t, asks+": letters that the table says "+line+" has", m[3], strconv.Itoa(letters))
		q, ok := dailyQuestions[asks]
		if !ok {
			continue
		}
		answered++
		at := map[bool]*dailyServer{true: paid, false: ours}[strings.Contains(asks, "cost")]
		line = strings.NewReplacer("sudo ", "", "NAME", q.about, "FILE", "kids.txt").Replace(line)
		out := at.run(line)
		testkit.WantParts(t, out, q.says...)
		if q.then != "" && !at.becomes(q) {
			t.Errorf("%s: %s is not %s after %s, which says:\n%s", asks, q.about, q.then, line, out)
		}
	}
	testkit.Equal(t, "questions in the table", answered, len(dailyQuestions))
}

// dailyServer is our server as a household has it.
type dailyServer struct {
	t   *testing.T
	dir string // where commands run
	dns string // port
}

// env is as the service manager of an installed server has it.
func (s *dailyServer) env() string { return "RUNTIME_DIRECTORY=" + s.dir }

// run returns what a line writes. Bad news has an exit status other than 0.
func (s *dailyServer) run(line string) string {
	shell := exec.CommandContext(s.t.Context(), "sh", "-c", line)
	shell.Dir = s.dir
	shell.Env = append(os.Environ(), s.env(), "PATH="+filepath.Dir(programs(s.t)["safebrowsing"])+":"+os.Getenv("PATH"))
	out, _ := shell.CombinedOutput()
	return string(out)
}

// becomes waits until the host of a question is what it promises, and for other clients is not.
func (s *dailyServer) becomes(q daily) bool {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); s.blocks(q.about, cmp.Or(q.client, "127.0.0.1")) != (q.then == "blocked"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return q.client == "" || s.blocks(q.about, "127.0.0.1") != (q.then == "blocked")
}

func (s *dailyServer) blocks(host, client string) bool {
	c := dns.Client{Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}}
	r, _, err := c.Exchange(new(dns.Msg).SetQuestion(host+".", dns.TypeA), "127.0.0.1:"+s.dns)
	return err == nil && r.Rcode == dns.RcodeNameError
}

// startDaily starts our server, before a service that lists bad.example, and waits until it protects.
func startDaily(t *testing.T, properties string) *dailyServer {
	t.Helper()
	service := httptest.NewServer(serviceWith(t, "bad.example/"))
	t.Cleanup(service.Close)
	dir := t.TempDir()
	s := &dailyServer{t, dir, testkit.FreePort(t)}
	testkit.Write(t, dir, "safebrowsing.key", "AIzaRIGHT\n")
	testkit.Write(t, dir, "block.txt", "0.0.0.0 shop.example\n0.0.0.0 false.example\n0.0.0.0 kids.example\n")
	testkit.Write(t, dir, "kids.txt", "# empty on purpose\n")
	block := func(view, allow string) string {
		return fmt.Sprintf(`.:%s {
	bind 127.0.0.1
	%s
	safebrowsing {
		%sendpoint %s
		api_key_file %s/safebrowsing.key
		db %s/db
		block %s/block.txt
		%s
		log
		look_back 1h
		confirm_timeout 10s
	}
	template ANY ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.7"
	}
	forward lan.example 192.0.2.53 192.0.2.54
}
`, s.dns, view, properties, service.URL, dir, dir, dir, allow)
	}
	file := testkit.Write(t, dir, "Corefile", block("view family {\n\t\texpr client_ip() == '127.0.0.2'\n\t}", "allow "+dir+"/kids.txt")+block("", ""))
	process := testkit.StartWith(t, []string{s.env()}, programs(t)["coredns"], "-conf", file)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(process.Output())
		}
	})
	testkit.Until(t, "our server protects", func() bool { return strings.HasPrefix(s.run("safebrowsing"), "Protected by ") })
	return s
}
