package status

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Source is where a page gets what it shows. Its methods are called at the same time.
type Source interface {
	Report() Report
	// Why says what the server blocks do with a host. It asks no server.
	Why(h lookup.Host) Why
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"clock": clock, "base": filepath.Base, "number": say.Number, "words": listWords, "chart": chartOf, "graphic": graphic,
		"since": func(t, now time.Time) string { return shortAge(now.Sub(t)) },
		"until": func(t, now time.Time) string { return shortAge(t.Sub(now)) },
		"day": func(t, now time.Time) bool {
			return t.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly)
		},
		"plural": say.Count, "noGuarantee": func() string { return NoGuarantee },
		"allow": func(name string) string { return Allowing("sudo safebrowsing", "1h", name) },
	}).Parse(pageHTML))

	// policy lets the page load nothing, and be framed by nobody. The hash covers its
	// one style.
	policy = "default-src 'none'; style-src 'sha256-" + styleHash() + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

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

// page is what the template shows.
type page struct {
	Report
	CSS     template.CSS
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
	p := page{Report: m.source.Report().Shown(), CSS: template.CSS(pageCSS)}
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
	err := pageTemplate.Execute(say.MaskedWriter{W: &body}, p)
	return body.Bytes(), err
}

// graphic returns a text with a replacement character for each control character, such as
// one that turns the direction of what follows, and for each byte that is no UTF-8: template
// escapes markup only, and the page may be read in a terminal.
func graphic(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
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
