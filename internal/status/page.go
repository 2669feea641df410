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
		"moment": say.Time, "base": filepath.Base,
		"since":  func(t, now time.Time) string { return Age(now.Sub(t)) },
		"until":  func(t, now time.Time) string { return Age(t.Sub(now)) },
		"lately": func(t, now time.Time) bool { return now.Sub(t) < hour*time.Minute },
		"plural": say.Count, "list": shortList, "noGuarantee": func() string { return NoGuarantee },
	}).Parse(pageHTML))

	// policy lets the page load nothing, and be framed by nobody. The hash is that of its
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
			http.Error(w, "Use the IP address of this machine in the URL: another name could be that of a foreign page", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "This page can only be read", http.StatusMethodNotAllowed)
		case r.URL.Path != "/":
			http.NotFound(w, r)
		default:
			m.show(w, r.URL.Query().Get("host"))
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
// this machine. Any other name may be that of an attacker, who has it resolve to this
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
}

func (m *maker) show(w http.ResponseWriter, asked string) {
	body, err := m.make(asked[:min(len(asked), maxHost)])
	if err != nil {
		http.Error(w, "The page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(body)
}

// make returns the page, with an answer about a host if that is asked.
func (m *maker) make(asked string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if age := time.Since(m.at); m.at.IsZero() || age < 0 || age >= fresh {
		r := m.source.Report()
		p := page{Report: r, CSS: template.CSS(pageCSS)}
		body, err := render(p)
		if err != nil {
			return nil, err
		}
		m.at, m.page, m.body = time.Now(), p, body
	}
	if asked == "" {
		return m.body, nil
	}
	p := m.page
	p.Asked = graphic(asked)
	h, ok := HostOf(asked)
	if p.Invalid = !ok; ok {
		why := m.source.Why(h)
		p.Why = &why
	}
	return render(p)
}

func render(p page) ([]byte, error) {
	var body bytes.Buffer
	err := pageTemplate.Execute(&body, p)
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
