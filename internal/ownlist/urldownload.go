package ownlist

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// limits bound one download in time.
type limits struct {
	whole time.Duration // of the download
	stall time.Duration // without a byte
	pace  time.Duration // of pace×floor bytes; a slower one gives its place to others
}

// floor is the bytes a second below which a download is slow: a tenth of the slowest lines
// that are sold. A list of 14 MiB takes all of the 15 minutes then.
const floor = 16 << 10

// maxRedirects is the most redirects that are followed.
const maxRedirects = 5

// newClient returns a client for one download, which reaches the server of a list by a new connection
// for each request.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: &inwards{RoundTripper: protocol.Once(protocol.Fresh(transport)), inward: isInward}, CheckRedirect: func(next *http.Request, before []*http.Request) error {
		next.Header.Del("Referer") // it has the query, which may be secret
		switch {
		case len(before) > maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case next.URL.Scheme == "http" && before[0].URL.Scheme == "https": // of others the transport has none
			return errors.New("a redirect from https to http")
		}
		return nil
	}}
}

// download is the answer of a server that has the list.
type download struct {
	unchanged          bool // the list is the one that the validators name
	etag, lastModified string
	body               io.Reader // decompressed; reading more than MaxBytes is an error
	close              func()    // nil if unchanged
}

// get asks for a list. s has the validators, if the list is on disk. alive is called with the
// number of bytes of the list that have come.
func get(ctx context.Context, client *http.Client, c URLConfig, s URLState, alive func(n int)) (*download, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "coredns-safebrowsing/"+say.Version)
	r.Header.Set("Accept-Encoding", "gzip") // keeps the transport from decompressing without a bound
	if s.ETag != "" {
		r.Header.Set("If-None-Match", s.ETag)
	}
	if s.LastModified != "" {
		r.Header.Set("If-Modified-Since", s.LastModified)
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	conditional := s.ETag != "" || s.LastModified != ""
	switch {
	case answer.StatusCode == http.StatusNotModified && conditional:
		answer.Body.Close()
		return &download{unchanged: true}, nil
	case answer.StatusCode != http.StatusOK:
		answer.Body.Close()
		return nil, &updater.StatusError{Code: answer.StatusCode, RetryAfter: protocol.RetryAfter(answer.Header)}
	}
	answer.Body = lively{answer.Body, alive}
	d, err := openedDownload(ctx, answer, c.MaxBytes)
	if err != nil {
		answer.Body.Close()
	}
	return d, err
}

// openedDownload returns the list in an answer. A list that is a gzip file is decompressed too.
func openedDownload(ctx context.Context, answer *http.Response, maxBytes int64) (*download, error) {
	if answer.ContentLength > maxBytes {
		return nil, protocol.TooLongError(maxBytes)
	}
	if err := protocol.Bound(ctx, answer, maxBytes); err != nil {
		return nil, err
	}
	d := &download{
		etag:         validator(answer.Header.Get("ETag")),
		lastModified: validator(answer.Header.Get("Last-Modified")),
		close:        func() { answer.Body.Close() },
	}
	br := bufio.NewReaderSize(&sticky{from: answer.Body}, 32<<10)
	d.body = br
	head, err := br.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if bytes.Equal(head, []byte("\x1f\x8b")) {
		unpacked, err := gzip.NewReader(br)
		if err != nil {
			return nil, err
		}
		d.body = &sticky{from: &bounded{unpacked, maxBytes, maxBytes}}
	}
	return d, nil
}

// sticky repeats an error for ever: bufio.Reader forgets one that Peek has returned.
type sticky struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (s *sticky) Read(p []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.from.Read(p)
	}
	return n, s.err
}

// validator returns a header that is sent back with the next request, or "" if it is too
// long or has unusual characters.
func validator(value string) string {
	if value != printable(value) {
		return ""
	}
	return value
}

// bounded fails after max bytes.
type bounded struct {
	from      io.Reader
	left, max int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n, protocol.TooLongError(b.max)
	}
	return n, err
}

// errStalled and errTooSlow are why a download was given up.
var (
	errStalled = errors.New("the server stopped sending")
	errTooSlow = errors.New("the download took too long")
)

// within returns a context that ends with the limits, and a function to call with the bytes
// of each read. It calls slow when the download is slower than floor for l.pace; then no more.
func (l limits) within(ctx context.Context, slow func()) (_ context.Context, alive func(n int), cancel func()) {
	ctx, timeout := context.WithTimeoutCause(ctx, l.whole, fmt.Errorf("%w: more than %s", errTooSlow, l.whole))
	ctx, give := context.WithCancelCause(ctx)
	timer := time.AfterFunc(l.stall, func() { give(fmt.Errorf("%w for %s", errStalled, l.stall)) })
	var came atomic.Int64
	wg := new(sync.WaitGroup)
	wg.Go(func() {
		ticker := time.NewTicker(l.pace)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if float64(came.Swap(0)) < floor*l.pace.Seconds() {
				slow()
				return
			}
		}
	})
	alive = func(n int) { came.Add(int64(n)); timer.Reset(l.stall) }
	return ctx, alive, func() { timer.Stop(); give(nil); timeout(); wg.Wait() }
}

// lively calls alive after each read that brings bytes.
type lively struct {
	io.ReadCloser
	alive func(n int)
}

// Read implements io.Reader.
func (l lively) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n > 0 {
		l.alive(n)
	}
	return n, err
}

// isUnreached reports whether an error says that no server was reached. A wrong clock, as
// after the start of a machine without a battery, makes all certificates invalid: it counts
// too.
func isUnreached(err error) bool {
	if errors.Is(err, errInward) {
		return false
	}
	_, network := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return network || name || certificate
}

// quoted is what an error quotes by %q: words of the server, which may be of one that speaks no HTTP.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// wordsOf returns an error without words of the server, and without the URL and its secrets, which a redirect may
// repeat.
func wordsOf(err error, c URLConfig) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if _, ok := errors.AsType[protocol.TooLongError](err); ok {
		return fmt.Sprintf("the list has more than %d bytes, the most that max_bytes allows", c.MaxBytes)
	}
	text := strings.TrimPrefix(err.Error(), updater.ErrMalformed.Error()+": ")
	text = quoted.ReplaceAllString(text, `"…"`)
	for _, secret := range secrets(c.URL) {
		if len(secret) > 2 { // a shorter one is in any text
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	text = printable(text)
	const most = 300
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// sideBySide is how many lists are downloaded at the same time. A download takes some 100 KiB
// of memory, whatever the list: it is on disk before package ownlist reads it.
const sideBySide = 4

// waitsLong is after what wait for a place a list says so.
const waitsLong = time.Minute

// downloads are places for the downloads under way: a semaphore that knows who has one. It is safe for concurrent
// use.
type downloads struct {
	free chan struct{} // has one element for each place that is taken

	mu    sync.Mutex
	names map[*urlSource]string // of those that have a place; guarded by mu
}

// take waits for a place, and returns a function that gives it back, which may be called more
// than once. Once, after waitsLong, it tells waiting which lists have the places. If ctx ends
// before there is one, it returns nil.
func (p *downloads) take(ctx context.Context, s *urlSource, waiting func(others []string)) (leave func()) {
	timer := time.NewTimer(waitsLong)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			waiting(p.taken())
			continue
		case p.free <- struct{}{}:
		}
		p.mu.Lock()
		p.names[s] = s.name
		p.mu.Unlock()
		return sync.OnceFunc(func() {
			p.mu.Lock()
			delete(p.names, s)
			p.mu.Unlock()
			<-p.free
		})
	}
}

// taken returns the names of the lists that have a place, sorted.
func (p *downloads) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Values(p.names))
}

// errInward is why a redirect is not followed: somebody outside must not make this server ask
// what only machines inside may, such as a router's page or the metadata of a cloud.
var errInward = errors.New("a redirect from a public address to one that is not public")

// isInward reports whether an address is not public: of this machine, of a private network, of
// a link, or shared by a provider (RFC 6890). An IPv4 address behind a NAT64 counts as itself.
func isInward(a netip.Addr) bool {
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || shared.Contains(a)
}

// shared are addresses between a provider and its customers (RFC 6598). nat64 are the ones for IPv4 addresses behind a
// NAT64 (RFC 6052); in 64:ff9b:1::/48 (RFC 8215) only the network knows which bytes are the IPv4 address.
var (
	shared = netip.MustParsePrefix("100.64.0.0/10")
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
)

// inwards is a transport for one download, which refuses to go from a public address inwards. It looks
// at the address of the connection: a name can have any. It is not safe for concurrent use.
type inwards struct {
	http.RoundTripper
	inward func(netip.Addr) bool
	public bool // a server at a public address has answered
}

// RoundTrip implements http.RoundTripper. A connection that leads inwards after a public one
// gets no request.
func (t *inwards) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, refuse := context.WithCancelCause(r.Context())
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		to, ok := info.Conn.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return
		}
		switch inward := t.inward(to.AddrPort().Addr()); {
		case inward && t.public:
			refuse(fmt.Errorf("%w, %s", errInward, to.IP))
			info.Conn.Close() // before the request is written
		case !inward:
			t.public = true
		}
	}}
	answer, err := t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errInward) {
			err = cause
		}
		refuse(nil)
	}
	return answer, err
}
