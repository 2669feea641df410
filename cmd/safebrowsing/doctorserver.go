package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Bounds of the checks that send requests.
const (
	resolveTimeout = 5 * time.Second
	serverTimeout  = 20 * time.Second
	maxClockSkew   = 5 * time.Minute
)

// servers examines the connection to each endpoint and its response.
func (e *examination) servers(ctx context.Context, o *block.Block) {
	e.byName = false
	for _, endpoint := range o.Settings.Endpoints() {
		e.endpoint = ""
		if len(o.Settings.Endpoints()) > 1 {
			e.endpoint = endpoint
		}
		e.server(ctx, o, endpoint)
	}
	e.endpoint = ""
	if e.byName {
		e.tell(loopDiagnosis(strings.Fields(o.Config.Resolvers), config.SystemResolvers(e.resolvConf), config.MachineAddresses(), e.blocks))
	}
}

// server examines the connection to the server at an address and its response.
func (e *examination) server(ctx context.Context, o *block.Block, address string) {
	endpoint, err := protocol.ParseEndpoint(address)
	if err != nil { // unreachable: the parser of the Corefile has checked the URL
		e.tell(diagnosis{"endpoint", isProblem, text(err.Error()), "correct endpoint"})
		return
	}
	proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: endpoint})
	resolves := e.resolve(ctx, o, endpoint.Hostname(), proxy != nil)
	if e.offline || !resolves {
		e.unasked(o, endpoint)
		return
	}
	p := newProbe(o, e.dial)
	client, err := o.Settings.At(address).Client(o.Config.Secret, new(lookup.Database), p)
	if err != nil {
		e.tell(diagnosis{"server", isProblem, text(err.Error()), "correct the Corefile"})
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	offered, err := client.Lists(ctx)
	if asked := p.answered || err != nil; asked {
		e.tell(tlsDiagnosis(o, endpoint, p.tls, p.answered, err))
		d := answerDiagnosis(o, address, offered, p.answered, err)
		status, refused := errors.AsType[*updater.StatusError](err)
		if refused = refused && !o.Settings.Google() && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden); refused {
			const known = " a key that the server knows: a relay reads its clients' keys from the file of its -client-key-file"
			switch {
			case e.asClient:
				d.Advice = "give -api-key-file with" + known
			case !o.Settings.Token && knownRefusal(status, o.Settings.Dialect()) == nil:
				d.Advice = "api_key_file needs" + known
			}
		}
		e.tell(d)
	} else { // the service has no request for it
		err = p.knock(ctx, endpoint)
		e.tell(tlsDiagnosis(o, endpoint, p.tls, p.answered, err))
		e.tell(acceptedDiagnosis(o, p.answered, err, time.Now()))
	}
	e.tell(clockDiagnosis(p.date, p.at))
	if e.asClient && err == nil {
		e.use(ctx, o, client, offered)
	}
}

// unasked prints the checks of a server to which no request is sent.
func (e *examination) unasked(o *block.Block, endpoint *url.URL) {
	why := text("the server's name does not resolve")
	if e.offline {
		why = "-offline"
	}
	way := tlsDiagnosis(o, endpoint, nil, false, nil)
	if way.Status == isSkipped {
		way.Text = why
	}
	e.tell(way)
	for _, check := range []string{"server", "clock"} {
		e.tell(diagnosis{check, isSkipped, why, ""})
	}
}

// resolve examines how the server's name is resolved. It reports whether that succeeded.
func (e *examination) resolve(ctx context.Context, o *block.Block, host string, proxied bool) bool {
	if _, err := netip.ParseAddr(host); err == nil || proxied {
		why := text("the endpoint is an IP address: there is no name to resolve")
		if proxied {
			why = "the proxy of the environment resolves the server's name"
		}
		e.tell(diagnosis{"resolve", isOK, why, ""})
		return true
	}
	e.byName = true
	by := "the system's resolver"
	if len(strings.Fields(o.Config.Resolvers)) > 0 {
		by = strings.Join(strings.Fields(o.Config.Resolvers), ", ")
	}
	if e.offline {
		e.tell(diagnosis{"resolve", isSkipped, "-offline", ""})
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addresses, err := protocol.Resolver(strings.Fields(o.Config.Resolvers)).LookupNetIP(ctx, "ip", host)
	if err != nil {
		// package net says the first name server of the system, even if it was not asked
		if name, ok := errors.AsType[*net.DNSError](err); ok && o.Config.Resolvers != "" {
			err = errors.New(name.Err)
		}
		e.tell(diagnosis{"resolve", isProblem, text(fmt.Sprintf("%s, by %s: %v", host, by, err)),
			"set resolver to one that works, such as 9.9.9.9"})
		return false
	}
	e.tell(diagnosis{"resolve", isOK, text(fmt.Sprintf("%s is %s, by %s", host, addresses[0].Unmap(), by)), ""})
	return true
}

// probe is a transport that remembers the last response. It is not safe for concurrent use.
type probe struct {
	base     http.RoundTripper
	answered bool                 // there was a response
	date     string               // its Date header
	at       time.Time            // when it came
	tls      *tls.ConnectionState // nil: without TLS
}

// dialer makes connections, see net.Dialer.DialContext.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func newProbe(o *block.Block, dial dialer) *probe {
	if dial == nil {
		dial = (&net.Dialer{Timeout: resolveTimeout, Resolver: protocol.Resolver(strings.Fields(o.Config.Resolvers))}).DialContext
	}
	secured, err := protocol.TLS(o.Settings.CA, protocol.CertFiles{Cert: o.Settings.Cert, Key: o.Settings.CertKey})
	if err != nil { // the parser of the Corefile has read the files a moment ago
		secured = new(tls.Config)
	}
	return &probe{base: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: protocol.ProxyAnswer,
		DialContext:            dial,
		TLSClientConfig:        secured,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    serverTimeout / 2,
	}}
}

// RoundTrip implements http.RoundTripper.
func (p *probe) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := p.base.RoundTrip(r)
	if err == nil {
		p.answered, p.date, p.at, p.tls = true, answer.Header.Get("Date"), time.Now(), answer.TLS
	}
	return answer, err
}

// knock sends a request for nothing, without the key. Any answer is a good one.
func (p *probe) knock(ctx context.Context, endpoint *url.URL) error {
	root := url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: "/", RawQuery: "alt=proto"}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, root.String(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "coredns-safebrowsing/"+say.Version)
	answer, err := p.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// tlsDiagnosis says whether others can read the requests. For http the endpoint alone
// decides.
func tlsDiagnosis(o *block.Block, endpoint *url.URL, state *tls.ConnectionState, answered bool, err error) diagnosis {
	what := "the hash prefixes"
	if o.Config.Secret != "" {
		what = "the key and " + what
	}
	switch {
	case answered && state != nil:
		return diagnosis{"tls", isOK, text(tls.VersionName(state.Version) + " with " + endpoint.Host), ""}
	case endpoint.Scheme == "http" && isLoopback(endpoint.Hostname()):
		return diagnosis{"tls", isOK, "not used: the server is on this machine", ""}
	case lookup.InClearText(endpoint.String()):
		return diagnosis{"tls", isWarning, text(fmt.Sprintf("not used with %s: others can read %s and change the responses", endpoint.Host, what)), "use https:// in endpoint"}
	case endpoint.Scheme == "http":
		return diagnosis{"tls", isOK, text(fmt.Sprintf("not used with %s in your own network, which can read %s", endpoint.Host, what)), ""}
	case isTLS(err):
		return diagnosis{"tls", isProblem, text(err.Error()), text("set the clock; " + authorities(o) + "; " +
			"make sure that no proxy or firewall intercepts the connection, and that endpoint is a server with TLS")}
	}
	return diagnosis{"tls", isSkipped, "there is no connection", ""}
}

// authorities says what to do if no authority vouches for the server.
func authorities(o *block.Block) string {
	if o.Settings.CA != "" {
		return "put the authority of the server's certificate into the file that tls or -endpoint-ca names: no other one counts"
	}
	return "install the system's root certificates (ca-certificates), or name the server's own authority with tls or -endpoint-ca"
}

// isTLS reports whether a connection failed because of TLS.
func isTLS(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert) ||
		err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// answerDiagnosis says whether the server accepts the key and has the lists.
func answerDiagnosis(o *block.Block, address string, offered []protocol.ListInfo, answered bool, err error) diagnosis {
	status := new(updater.StatusError)
	switch {
	case errors.As(err, &status):
		advice := adviceFor(status.Code, o)
		if known := knownRefusal(status, o.Settings.Dialect()); known != nil && o.Config.Secret != "" && !o.Settings.Token {
			advice = text(known.Error())
		}
		if status.Code == http.StatusBadRequest && status.Message == "" && strings.HasPrefix(address, "http:") { // as a server with TLS answers
			advice = "if this is a server with TLS, write https:// in endpoint; else correct endpoint"
		}
		return diagnosis{"server", isProblem, text(err.Error()), advice}
	case isTLS(err):
		return diagnosis{"server", isSkipped, "there is no connection", ""}
	case err != nil && !answered:
		advice := text("start the server there, correct endpoint, or open the firewall for it")
		if o.Settings.Google() {
			advice = "open the firewall for it, or set $HTTPS_PROXY to a proxy that can reach it"
		}
		return diagnosis{"server", isProblem, text(fmt.Sprintf("no answer from %s: %v", address, err)), advice}
	case err != nil:
		return diagnosis{"server", isProblem, text(err.Error()), text(fmt.Sprintf("make sure that endpoint is a %s server and not the page of a proxy", o.Settings.Dialect().Title))}
	}
	var missing []string
	for _, name := range o.Settings.Stored() {
		if !slices.ContainsFunc(offered, func(l protocol.ListInfo) bool { return l.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return diagnosis{"server", isProblem, text("it does not have " + strings.Join(missing, ", ")), text("correct lists, or add these on the server" + didYouMean(": ", missing...))}
	}
	accepted := "it answers"
	if o.Config.Secret != "" {
		accepted = "it accepts the key"
	}
	return diagnosis{"server", isOK, text(fmt.Sprintf("%s and offers %s", accepted, say.Count(len(offered), "list", "lists"))), ""}
}

// acceptedDiagnosis says whether a server can be reached, and what CoreDNS has noted about
// the key. It is for services that charge for each request, or that may be asked only when it is time.
func acceptedDiagnosis(o *block.Block, answered bool, err error, now time.Time) diagnosis {
	if !answered {
		return answerDiagnosis(o, o.Settings.Address(), nil, answered, err)
	}
	hold := o.Stored.FetchHold()
	switch {
	case hold.Failures > 0 && !renewedSince(o, hold.Failed):
		return diagnosis{"server", isProblem, text(fmt.Sprintf("it answers, but CoreDNS is in a %v", hold)), adviceOn(o, hold)}
	case o.Config.Secret == "":
		return diagnosis{"server", isOK, "it answers", ""}
	case hold.Failures == 0 && hold.Cause == "" && hold.Active(now): // of this key
		return diagnosis{"server", isOK, text(fmt.Sprintf("it answers, and it accepted the %s at the last update of the lists", o.Settings.Credential())), ""}
	}
	return diagnosis{"server", isWarning, text(fmt.Sprintf("it answers; whether it accepts the %s is not known yet: %s has no request to try it with", o.Settings.Credential(), o.Config.Service)),
		"start CoreDNS, or run safebrowsing update with this Corefile: the update of the lists tries it, and costs nothing"}
}

// clockDiagnosis compares the Date header of a response with the clock at its arrival.
func clockDiagnosis(date string, at time.Time) diagnosis {
	server, err := http.ParseTime(date)
	if err != nil {
		return diagnosis{"clock", isSkipped, "there is no response with a Date header", ""}
	}
	skew := at.Sub(server).Truncate(time.Second) // the header has whole seconds
	if skew.Abs() <= maxClockSkew {
		return diagnosis{"clock", isOK, text(fmt.Sprintf("%s from the server's", skew.Abs())), ""}
	}
	word := "ahead of"
	if skew < 0 {
		word = "behind"
	}
	return diagnosis{"clock", isProblem, text(fmt.Sprintf("%s %s the server's", skew.Abs(), word)), "run an NTP client: certificates and lists expire by the clock"}
}

// loopDiagnosis says whether CoreDNS would resolve the name of the server through itself.
// If the stanza has no resolver, the system's are used. A system resolver on this machine
// is always suspicious: it may forward to CoreDNS.
func loopDiagnosis(configured, system []string, machine []netip.Addr, blocks []serverBlock) diagnosis {
	const advice = "set another resolver, such as 9.9.9.9"
	resolvers := configured
	if len(configured) == 0 {
		resolvers = system
	}
	for _, r := range resolvers {
		at, local := config.LocalResolver(r, machine)
		switch {
		case local && slices.ContainsFunc(blocks, func(b serverBlock) bool { return b.At(at.Addr(), at.Port()) }):
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by %s, where this Corefile listens: "+
				"to fetch lists, CoreDNS would first need its own answer", r)), advice}
		case len(configured) == 0 && at.Addr().IsLoopback():
			return diagnosis{"loop", isWarning, text(fmt.Sprintf("the server's name is resolved by the system's resolver %s on this machine: "+
				"it may ask this CoreDNS in turn", r)), advice}
		}
	}
	return diagnosis{"loop", isOK, "the server's name is resolved elsewhere", ""}
}
