package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// tryKey asks a server for the names of its lists, once. The error is a *keyRefusal if the server
// answers and does not accept the key.
func tryKey(ctx context.Context, endpoint, key string, resolvers []string) error {
	if err := say.CheckKey(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	var at []string
	for _, r := range resolvers {
		at = append(at, withPort(r))
	}
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, Key: key, Resolvers: at, UserAgent: "coredns-safebrowsing/" + say.Version})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Lists(ctx)
	if status, ok := errors.AsType[*updater.StatusError](err); ok {
		if refused := refusalOf(status, protocol.Dialects()[0]); refused != nil {
			return refused
		}
	}
	if isTLS(err) { // as on a Raspberry Pi whose clock was never set
		return fmt.Errorf("%w. Set the clock, and install the system's root certificates (ca-certificates)", err)
	}
	return err
}

// withPort returns the address of a resolver with its port, 53 if it has none. Each address has one spelling.
func withPort(address string) string {
	at, err := netip.ParseAddrPort(address)
	if a, notAddress := netip.ParseAddr(address); notAddress == nil {
		at, err = netip.AddrPortFrom(a, 53), nil
	}
	if err != nil { // with the name of its certificate
		return address
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
}

// keyRefusal says why a server does not accept a key, and what ends that.
type keyRefusal struct{ why, cure string }

// Error implements error.
func (r *keyRefusal) Error() string { return r.why + ". " + r.cure }

// cloudConsole is where keys are made.
const cloudConsole = "https://console.cloud.google.com"

type refusal struct{ words, why, cure string }

// refusals are the words with which Google refuses a key, in lower case, and what they mean
// (Google Cloud, "API keys", and "Error details": the reasons of google.rpc.ErrorInfo have no place in
// the text, the words have).
var refusals = []refusal{
	{"has not been used in project", "the @SERVICE API is not enabled in the key's project", "Enable it at @API, wait a minute, and try again. If it is enabled in another project, the key belongs to the wrong project: make one in that one"},
	{"it is disabled", "the @SERVICE API is not enabled in the key's project", "Enable it at @API, wait a minute, and try again"},
	{"ip address restriction", "the key is restricted to other IP addresses", "Add the public address of this network to the key's application restrictions at @KEYS"},
	{"referer", "the key is restricted to web sites", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"android client application", "the key is restricted to Android apps", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"ios client application", "the key is restricted to iOS apps", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"are blocked", "the key is restricted to other APIs", "Add the @SERVICE API to the key's API restrictions at @KEYS"},
	{"api key expired", "the key has expired", "Make a new one at @KEYS"},
	{"has been suspended", "Google has suspended the key or its project", "See the project's notices at @KEYS, or make a key in another project"},
	{"api key not valid", "Google does not know the key", "Copy it again from @KEYS: it has 39 letters and begins with AIza"},
	{"billing", "the key's project has no billing account, which its service demands", "Add one, or use the Safe Browsing API, if you may"},
}

var projectNumber = regexp.MustCompile(`project (?:number )?(\d+)`)

// refusalOf says what a status means for the key of a service, or returns nil.
func refusalOf(status *updater.StatusError, d *protocol.Dialect) *keyRefusal {
	keys := cloudConsole + "/apis/credentials"
	switch r := knownRefusal(status, d); {
	case r != nil:
		return r
	case status.Code == http.StatusBadRequest, status.Code == http.StatusUnauthorized, status.Code == http.StatusForbidden:
		return &keyRefusal{fmt.Sprintf("the server refuses the key: %v", status), "See the key and its restrictions at " + keys}
	case status.Code == http.StatusTooManyRequests: // it knows the key
		return &keyRefusal{"the quota of the key's project is used up", "Wait until midnight, Pacific time, or see the quota at " + apiPage(d)}
	}
	return nil
}

// knownRefusal says what the words of a server mean for the key of a service. It returns nil for
// words that are not Google's.
func knownRefusal(status *updater.StatusError, d *protocol.Dialect) *keyRefusal {
	said := strings.ToLower(status.Message)
	i := slices.IndexFunc(refusals, func(r refusal) bool { return strings.Contains(said, r.words) })
	if i < 0 {
		return nil
	}
	r, project := refusals[i], ""
	number := projectNumber.FindStringSubmatch(said)
	if number != nil { // the console opens the key's project
		r.why, project = r.why+", which is number "+number[1], "?project="+number[1]
	}
	pages := strings.NewReplacer("@SERVICE", d.Service, "@API", apiPage(d)+project, "@KEYS", cloudConsole+"/apis/credentials"+project)
	return &keyRefusal{pages.Replace(r.why), pages.Replace(r.cure)}
}
