package status

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Source is where a page gets what it shows. Its methods are called at the same time.
type Source interface {
	Report() Report
	// Why says what the server blocks do with a host. It asks no server.
	Why(h lookup.Host) Why
}

// policy lets the page load nothing, and be framed by nobody. The hash covers its
// one style.
var policy = "default-src 'none'; style-src 'sha256-" + styleHash() + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func styleHash() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// maxHost is the most bytes of what the form takes, and maxName of a host in it: the
// most of a name of the DNS (RFC 1035, section 2.3.4).
const (
	maxHost = 1000
	maxName = 255
)

// page is what is shown.
type page struct {
	Report
	Stays   bool   // it does not renew itself
	Asked   string // in the form
	Invalid bool   // it is no host
	Why     *Why   // nil: nothing is asked
}

// handler serves the page of a source.
func handler(source Source) http.Handler {
	m := &maker{source: source}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		switch {
		case !ownHost(r.Host):
			http.Error(w, "Use the IP address of this machine in the URL: another name could belong to a foreign page", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "This page can only be read", http.StatusMethodNotAllowed)
		case r.URL.Path == "/status.json":
			m.tell(w)
		case r.URL.Path != "/":
			http.NotFound(w, r)
		default:
			m.show(w, r.URL.Query())
		}
	})
}

// secure sets the headers of all answers.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// ownHost reports whether the Host of a request is an address, localhost, or the name of
// this machine. Any other name may belong to an attacker, who lets it resolve to this
// address and then reads the page in a browser of the network (DNS rebinding).
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	own, err := os.Hostname()
	return err == nil && host == strings.ToLower(own)
}

// fresh is how long a page is shown again. Reports ask each engine and server block.
const fresh = time.Second

// maker makes pages, one at a time: a flood of requests takes one core at most. It is safe for
// concurrent use.
type maker struct {
	source Source

	mu   sync.Mutex
	at   time.Time // when the last page was made; zero: never
	page page      // without an answer
	body []byte    // of it
	json []byte    // its report
}

// show answers with the page. One with an answer about a host, or that was asked to stay, does not renew
// itself: it would be lost while it is read.
func (m *maker) show(w http.ResponseWriter, query url.Values) {
	asked := query.Get("host")
	body, err := m.make(asked[:min(len(asked), maxHost)], query.Has("stay"))
	if err != nil {
		cannotBeMade(w, err)
		return
	}
	if asked == "" && !query.Has("stay") {
		w.Header().Set("Refresh", "60")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(body)
}

// tell answers with the report as JSON, as the control socket does.
func (m *maker) tell(w http.ResponseWriter) {
	m.mu.Lock()
	err := m.renew()
	body := m.json
	m.mu.Unlock()
	if err != nil {
		cannotBeMade(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(body)
}

func cannotBeMade(w http.ResponseWriter, err error) {
	http.Error(w, "The page cannot be made: "+err.Error(), http.StatusInternalServerError)
}

// make returns the page, with an answer about a host if that is asked.
func (m *maker) make(asked string, stay bool) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.renew(); err != nil || asked == "" && !stay {
		return m.body, err
	}
	p := m.page
	if p.Stays = true; asked == "" {
		return render(p)
	}
	p.Asked = graphic(asked)
	h, ok := HostOf(asked)
	if p.Invalid = !ok; ok {
		why := m.source.Why(h)
		p.Why = &why
	}
	return render(p)
}

// renew makes the page again if it is not fresh. The caller holds mu.
func (m *maker) renew() error {
	if age := time.Since(m.at); !m.at.IsZero() && age >= 0 && age < fresh {
		return nil
	}
	p := page{Report: m.source.Report().Shown()}
	body, err := render(p)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := p.Report.WriteJSON(&text); err != nil {
		return err
	}
	m.at, m.page, m.body, m.json = time.Now(), p, body, text.Bytes()
	return nil
}

func render(p page) ([]byte, error) {
	var body bytes.Buffer
	err := p.Render(say.MaskedWriter{W: &body})
	return body.Bytes(), err
}

// HostOf returns the host of what was typed: a name of the DNS or a URL.
func HostOf(text string) (h lookup.Host, ok bool) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "/") {
		u, err := lookup.ParseURL(text)
		h, ok = u.Host(), err == nil && u.Host() != lookup.Host{}
	} else {
		h, ok = lookup.ParseHost(text)
	}
	return h, ok && len(h.String()) <= maxName
}

// chart is a day's line: the questions of each hour as a line, and below it what was blocked as bars,
// each with a scale of its own.
type chart struct {
	Label       string   // for those who do not see it
	Line        string   // points of an SVG polyline
	Bars        []bar    // of the hours
	Hours       []string // local time, at equal distances
	Checked     int
	Blocked     int
	MostChecked int // questions in an hour
	MostBlocked int // blocked in an hour
}

// bar is what was blocked in an hour.
type bar struct {
	X, Y, Height float64
	Text         string
}

// The measures of a chart. An hour is hourWidth wide; the line has the upper part, the bars the lower.
const (
	hourWidth  = 20
	lineHeight = 40
	barsTop    = 48
	barsHeight = 24
)

// chartOf draws the last 24 hours before now; nil: there was no question.
func chartOf(day Day, now time.Time) *chart {
	c := new(chart)
	for _, h := range day.Hours {
		c.Checked, c.MostChecked = c.Checked+h.Checked, max(c.MostChecked, h.Checked)
		c.Blocked, c.MostBlocked = c.Blocked+h.Blocked, max(c.MostBlocked, h.Blocked)
	}
	if c.Checked == 0 && c.Blocked == 0 {
		return nil
	}
	c.Label = fmt.Sprintf("The last 24 hours: %s questions, at most %s in an hour, and %s blocked, at most %s in an hour.",
		say.Number(c.Checked), say.Number(c.MostChecked), say.Number(c.Blocked), say.Number(c.MostBlocked))
	var line strings.Builder
	for i, h := range day.Hours {
		began := now.Local().Add(-time.Duration(len(day.Hours)-1-i) * time.Hour).Format("15:00")
		fmt.Fprintf(&line, "%d,%.1f ", i*hourWidth+hourWidth/2, lineHeight-part(h.Checked, c.MostChecked)*(lineHeight-2))
		height := part(h.Blocked, c.MostBlocked) * barsHeight
		c.Bars = append(c.Bars, bar{float64(i * hourWidth), barsTop + barsHeight - height, height,
			fmt.Sprintf("%s: %s of %s questions blocked", began, say.Number(h.Blocked), say.Number(h.Checked))})
		if i%6 == 0 {
			c.Hours = append(c.Hours, began)
		}
	}
	c.Line = strings.TrimSpace(line.String())
	return c
}

func part(n, most int) float64 { return float64(max(n, 0)) / float64(max(most, 1)) }

// clock prints when something is or was, in local time and in UTC, with the date if that is not today.
func clock(t, now time.Time) string {
	form := "15:04"
	if t.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		form = time.DateOnly + " 15:04"
	}
	text := t.Local().Format(form + " MST")
	if _, offset := t.Local().Zone(); offset == 0 {
		return t.UTC().Format(form + " UTC")
	}
	return text + t.UTC().Format(" (15:04 UTC)")
}

// shortAge prints a duration for a narrow column.
func shortAge(d time.Duration) string {
	if d < time.Minute {
		return "<1m"
	}
	age := say.Age(d)
	if hours, ok := strings.CutSuffix(age, "h0m"); ok {
		return hours + "h"
	}
	return age
}

// listWords returns what a list is called on the page: what it holds, or its file.
func listWords(list string) string {
	if list == "" {
		return noList
	}
	title := say.TitleOf(list)
	if title == list && !strings.Contains(list, "://") {
		title = filepath.Base(list)
	}
	if title == say.TitleOf(list) && title != list {
		title = strings.ToUpper(title[:1]) + title[1:]
	}
	return title
}

// maxConnections is the most connections to one page at once. One client may have half of them,
// and only a quarter while half are taken.
const maxConnections = 64

// Pages are the pages of a process: one for each address, however many server blocks name
// it. A page continues over a reload that names its address again. The zero value has none; it
// is safe for concurrent use.
type Pages struct {
	mu   sync.Mutex
	open map[string]*server
}

// server serves one page.
type server struct {
	http.Server
	at      net.Addr
	holders int
}

// Open serves the page of a source at an address, unless it is served there already, and
// returns how to let go of it: with its last holder the page ends. at is where it is served,
// or nil if it was served already: then the source is not used.
func (p *Pages) Open(address string, source Source) (at net.Addr, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.open[address]
	if s == nil {
		if s, err = serve(address, source); err != nil {
			return nil, nil, err
		}
		if p.open == nil {
			p.open = make(map[string]*server)
		}
		p.open[address], at = s, s.at
	}
	s.holders++
	return at, sync.OnceFunc(func() { p.release(address, s) }), nil
}

func (p *Pages) release(address string, s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.holders--; s.holders == 0 {
		delete(p.open, address)
		s.Close()
	}
}

// serve listens and serves, until Close.
func serve(address string, source Source) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s := &server{at: listener.Addr(), Server: http.Server{
		Handler:           handler(source),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    8 << 10,
	}}
	go s.Serve(lookup.Listen(listener, maxConnections, nil))
	return s, nil
}
