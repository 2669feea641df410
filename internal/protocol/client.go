package protocol

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/idna"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// DefaultEndpoint is the address of Google's Safe Browsing server.
const DefaultEndpoint = "https://safebrowsing.googleapis.com"

// Client speaks to one Safe Browsing server. It is safe for concurrent use.
type Client interface {
	updater.Source
	updater.Reacher
	lookup.Searcher
	// Lists returns the lists that the server offers.
	Lists(ctx context.Context) ([]ListInfo, error)
	updater.Keyed
	// SetKey puts another API key, or access token, in use: requests from now on carry it, unless
	// Keep was called before. Nothing changes if CheckKey refuses the key.
	SetKey(key string) error
	// Advisory returns the URL in the AdvisoryHeader of the last good answer, one of a Provider's;
	// "": it had none. known is false before the first one.
	Advisory() (url string, known bool)
	// Announce makes the client note in a what a relay says about its budget, from now on; Google's
	// servers say nothing. Call it before the first search.
	Announce(a *Announced)
	// Close ends idle connections.
	Close()
}

// ListInfo describes a list that the server offers.
type ListInfo struct {
	Name        string
	Description string
	Threats     lookup.Threats
}

// Config says how a client reaches the server.
type Config struct {
	Endpoint   string   // zero: DefaultEndpoint, or WebRiskEndpoint for a WebRisk
	Key        string   // API key, or access token; zero: none is sent
	Bearer     bool     // Key is an OAuth 2.0 access token (RFC 6750 section 2.1), not an API key
	UserAgent  string   // required; "name/version"
	Resolvers  []string // "address:port" of name servers that know the endpoint's name; none: the system's
	MaxEntries int      // of a list, asked of the server; zero: no limit
	// CA has certificates, in PEM, of the only authorities that may vouch for the server;
	// "": the system's. See parseCA.
	CA string
	// Cert proves to the server who asks; zero: nothing does.
	Cert CertFiles
	// Transport replaces the connection to the server in tests; nil: HTTP.
	Transport http.RoundTripper
}

// caller sends requests and reads answers, in whichever version of the protocol.
type caller struct {
	cfg  Config
	keys atomic.Pointer[keys]
	base *url.URL
	http [methods]*http.Client
	// google says that Google runs the server: headers of a relay count for nothing.
	google bool

	announced atomic.Pointer[Announced] // nil: nobody wants to know
	heard
}

// keys are the API key, or access token, in use, and the one before, which answers
// may still quote.
// "": none.
type keys struct{ current, last string }

// newCaller returns an error that says what is wrong with the configuration,
// without the key in it. Endpoint is the one that is asked if cfg has none.
func newCaller(cfg Config, endpoint string) (*caller, error) {
	base, err := ParseEndpoint(cmp.Or(cfg.Endpoint, endpoint))
	if err != nil {
		return nil, err
	}
	if err := CheckKey(cfg.credential(), cfg.Key); err != nil {
		return nil, err
	}
	if cfg.UserAgent == "" {
		return nil, errors.New("a client needs a user agent")
	}
	if cfg.Transport == nil {
		secured, err := TLS(cfg.CA, cfg.Cert)
		if err != nil {
			return nil, err
		}
		cfg.Transport = Transport(cfg.Resolvers, secured)
	}
	c := &caller{cfg: cfg, base: base, google: IsGoogle(base.String())}
	for m, transport := range [methods]http.RoundTripper{fetching: Fresh(cfg.Transport), searching: cfg.Transport} {
		c.http[m] = &http.Client{
			Transport: Once(transport),
			// A redirect could carry the key elsewhere: it is an answer like any
			// other whose status is not 200.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	c.keys.Store(&keys{current: cfg.Key})
	return c, nil
}

// ParseEndpoint parses the URL of a server. An international name becomes its ASCII form, which
// name servers know.
func ParseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Contains(u.Hostname(), ",") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the endpoint must be a URL such as " + DefaultEndpoint)
	}
	if ascii, err := idna.Lookup.ToASCII(u.Hostname()); err == nil {
		u.Host = strings.Replace(u.Host, u.Hostname(), ascii, 1)
	}
	return u, nil
}

// openly returns what is meant for an endpoint, which may be no URL, without the parts that may be secret.
func openly(text string) string {
	begin := 0 // of what may be a user and a password
	if i := strings.Index(text, "://"); i >= 0 {
		begin = i + len("://")
	}
	rest := text[begin:]
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	return text[:begin] + rest
}

// CheckEndpoints returns why the servers at one or more URLs cannot be asked, the first one
// preferred, or nil.
func CheckEndpoints(urls []string) error {
	for i, endpoint := range urls {
		switch err := checkEndpoint(endpoint); {
		case err != nil && len(urls) > 1:
			return fmt.Errorf("%q: %w", openly(endpoint), err)
		case err != nil:
			return err
		case slices.Contains(urls[:i], endpoint):
			return errors.New(endpoint + " is given more than once")
		case len(urls) > 1 && IsGoogle(endpoint):
			// Google's rules hold for a key: another server must not be asked in its place.
			return errors.New(endpoint + " cannot be one of several: only servers of your own stand in for each other")
		}
	}
	return nil
}

func checkEndpoint(endpoint string) error {
	u, err := ParseEndpoint(endpoint)
	if err != nil {
		return err
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("the port %q is not a number from 1 to 65535", port)
		}
	}
	if IsGoogle(endpoint) && u.Path != "" {
		return errors.New("the server of Google takes no path: write https://" + u.Hostname())
	}
	return nil
}

// credential returns what kind of key the client asks with.
func (cfg Config) credential() string {
	if cfg.Bearer {
		return "token"
	}
	return "API key"
}

// CheckKey returns an error for a key that cannot be in a header. what it is begins the error, and
// the key is not in it.
func CheckKey(what, key string) error {
	for _, c := range []byte(key) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("the " + what + " holds a space or another character that none has")
		}
	}
	return nil
}

// SetKey implements Client.
func (c *caller) SetKey(key string) error {
	if err := CheckKey(c.cfg.credential(), key); err != nil {
		return err
	}
	c.keys.Store(&keys{current: key, last: c.keys.Load().current})
	return nil
}

// keptKey is the key in a context for the key to ask with.
type keptKey struct{}

// Keep implements updater.Keyed. It takes no lock.
func (c *caller) Keep(ctx context.Context) context.Context {
	return context.WithValue(ctx, keptKey{}, c.keys.Load().current)
}

// key returns the key for a request.
func (c *caller) key(ctx context.Context) string {
	if key, kept := ctx.Value(keptKey{}).(string); kept {
		return key
	}
	return c.keys.Load().current
}

// Close implements Client.
func (c *caller) Close() {
	for _, client := range c.http {
		client.CloseIdleConnections()
	}
}

// Transport returns the standard transport, with HTTP/2 and HTTPS_PROXY, but for bounds on
// each step and its own way to resolve names: this server may be the machine's only
// resolver.
func Transport(resolvers []string, secured *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Resolver: Resolver(resolvers)}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			return conn, askedOf(err, resolvers)
		},
		OnProxyConnectResponse: ProxyAnswer,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        secured,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 1 << 16,
		// A connection that has died without a word, as when a line is dialled again,
		// is replaced after 15 seconds without a byte: less than two searches that
		// time out.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
}

// ProxyAnswer is an http.Transport's OnProxyConnectResponse that says who refuses: net/http says "Forbidden"
// as if the server had.
func ProxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("the proxy %s answers with status %s", proxy.Host, answer.Status)
}

// Resolver returns a resolver that asks the first of some name servers, each "address:port", and from
// one that fails on the next, or the system's resolver if none is given. It is safe for concurrent use.
func Resolver(servers []string) *net.Resolver {
	if len(servers) == 0 {
		return net.DefaultResolver
	}
	var failures atomic.Uint32
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			before := failures.Load()
			failed := func() { failures.CompareAndSwap(before, before+1) } // questions that fail together count once
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, servers[before%uint32(len(servers))])
			if udp, ok := conn.(*net.UDPConn); ok {
				return question{udp, failed}, nil
			}
			if err != nil {
				failed()
			}
			return conn, err
		},
	}
}

// question is a connection to a name server for one question.
type question struct {
	*net.UDPConn
	failed func()
}

// Read implements net.Conn. An answer that is neither one nor NXDOMAIN is a failure.
func (q question) Read(p []byte) (n int, err error) {
	n, err = q.UDPConn.Read(p)
	if err != nil || n > 3 && p[3]&15 != 0 && p[3]&15 != 3 {
		q.failed()
	}
	return n, err
}

// askedOf corrects the name server in an error. The resolver of package net says the first of
// the system, even if it was not asked.
func askedOf(err error, servers []string) error {
	op, ok := errors.AsType[*net.OpError](err)
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	if !ok || !isLookup || len(servers) == 0 {
		return err
	}
	named, corrected := *lookup, *op // copies: other goroutines may have the same error
	named.Server = strings.Join(servers, " or ")
	corrected.Err = &named
	return &corrected
}

// call asks for path, by POST if there is a body, and decodes the answer, within b.
func (c *caller) call(ctx context.Context, m method, path string, query url.Values, body []byte, b bound, into proto.Message) error {
	answer, err := c.open(ctx, m, path, query, body, b.bytes)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return readWhole(answer, b, into)
}

// open sends a request, by POST if it has a body, and returns the answer, which has status 200 and whose body
// must be closed. The body is decompressed; reading more than maxBytes of it, or
// reading it when ctx has ended, is an error.
func (c *caller) open(ctx context.Context, m method, path string, query url.Values, body []byte, maxBytes int64) (*http.Response, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	query.Set("alt", "proto")
	u.RawQuery = query.Encode()
	var way connecting
	verb := http.MethodGet
	if body != nil {
		verb = http.MethodPost
	}
	r, err := http.NewRequestWithContext(way.watch(ctx, strings.TrimSuffix(u.Hostname(), ".")), verb, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	r.Header.Set("Accept", "application/x-protobuf")
	r.Header.Set("Accept-Encoding", "gzip") // keeps the transport from decompressing without a bound
	r.Header.Set("User-Agent", c.cfg.UserAgent)
	if body != nil {
		r.Header.Set("Content-Type", "application/x-protobuf")
	}
	switch key := c.key(ctx); {
	case key == "":
	case c.cfg.Bearer:
		r.Header.Set("Authorization", "Bearer "+key)
	default:
		r.Header.Set("X-Goog-Api-Key", key)
	}
	if lookup.OnlyKnown(ctx) && !c.google {
		r.Header.Set(OnlyKnownHeader, "?1")
	}
	if strings.HasPrefix(path, "/v5/hashList") && !c.google {
		r.Header.Set(AsStoredHeader, "?1")
	}
	answer, err := c.http[m].Do(r)
	if err != nil {
		return nil, way.judge(withoutURL(err), c.base)
	}
	c.listen(path, answer)
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, c.statusError(ctx, answer)
	}
	c.hear(c.relayHeader(answer, AdvisoryHeader))
	if err := Bound(ctx, answer, maxBytes); err != nil {
		answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// withoutURL takes the URL, which is long and says which prefixes were asked,
// out of an error.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// withoutKey takes the keys out of a text, plain and as %q writes them.
func (c *caller) withoutKey(text string) string {
	known := c.keys.Load()
	for _, key := range []string{known.current, known.last} {
		if key != "" {
			quoted := strconv.Quote(key)
			text = strings.NewReplacer(key, "(the key)", quoted[1:len(quoted)-1], "(the key)").Replace(text)
		}
	}
	return text
}

// hideKey takes the key out of *err, if that is an error, and makes it fit for a log line: the server
// knows the key and may have put it, or anything else, into the words that an error quotes.
func (c *caller) hideKey(err *error) {
	if *err == nil {
		return
	}
	if text := c.printable((*err).Error(), maxErrorText); text != (*err).Error() {
		*err = &reworded{text: text, err: *err}
	}
}

// reworded is an error in other words.
type reworded struct {
	text string
	err  error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.err }

// statusError reads what the server says about a failure. It is a *refusal if a relay says so.
func (c *caller) statusError(ctx context.Context, answer *http.Response) error {
	e := &updater.StatusError{Code: answer.StatusCode, RetryAfter: RetryAfter(answer.Header)}
	e.Message = c.messageOf(ctx, answer)
	e.LacksList = e.Code == http.StatusNotFound && c.relayHeader(answer, ListsHeader) != ""
	if value := c.relayHeader(answer, UnansweredHeader); value != "" && e.Code == http.StatusServiceUnavailable {
		return &refusal{e, value}
	}
	return e
}

// messageOf reads the text of a failure, or returns "".
func (c *caller) messageOf(ctx context.Context, answer *http.Response) string {
	answer.ContentLength = -1 // of a long text the beginning is enough
	if Bound(ctx, answer, maxErrorBytes) != nil {
		return ""
	}
	var body struct {
		Error struct{ Message string }
	}
	raw, _ := io.ReadAll(answer.Body) // a cut text is no JSON
	text := ""
	if json.Unmarshal(raw, &body) == nil {
		text = body.Error.Message
	} else if isBinary(answer.Header.Get("Content-Type")) {
		text = statusText(raw)
	}
	if text == "" {
		return ""
	}
	return c.printable(text, maxMessage)
}

// statusText returns the message in a google.rpc.Status, which is the form of an error for alt=proto,
// or "". The details behind it may be cut.
func statusText(raw []byte) string {
	for {
		field, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return ""
		}
		raw = raw[n:]
		if field == 2 && kind == protowire.BytesType {
			text, _ := protowire.ConsumeString(raw)
			return text
		}
		if n = protowire.ConsumeFieldValue(field, kind, raw); n < 0 {
			return ""
		}
		raw = raw[n:]
	}
}

// relayHeader returns the value of a header of relays, or "". Google's server sends none.
func (c *caller) relayHeader(answer *http.Response, name string) string {
	if c.google {
		return ""
	}
	return answer.Header.Get(name)
}

// The most bytes of an error in words, and of what a server says about it.
const (
	maxErrorText = 1000
	maxMessage   = 300
)

// printable makes a server's words fit for a log line, of most bytes.
func (c *caller) printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, c.withoutKey(text))
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// RetryAfter reads the header of that name (RFC 9110 section 10.2.3). It returns 0 if the
// value is not valid. A date counts by serverClock.
func RetryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	// A number that does not fit comes as the greatest that does.
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now := time.Now()
	_, most, _ := newServerClock(header, now, now).until(timestamppb.New(date))
	return most
}
