package sharing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// TargetKind says how a Redis is run.
type TargetKind uint8

// The kinds.
const (
	Single   TargetKind = iota // one server
	Sentinel                   // a master that Sentinels name
	Cluster                    // Redis Cluster
)

// Target is where a Redis is, without its password unless the URL has one.
type Target struct {
	Kind      TargetKind
	TLS       bool
	Addresses []string // "host:port" of the server, of Sentinels, or of nodes of the cluster
	Master    string   // the name that Sentinels know the master by
	User      string   // "": the default user
	Password  string   // as the URL has it; "": none
	DB        int      // number of the database
}

// schemes are the forms of a URL, with redis for valkey. The words are as in
// redis-py, Lettuce and ioredis.
var schemes = map[string]Target{
	"redis":           {Kind: Single},
	"rediss":          {Kind: Single, TLS: true},
	"redis+sentinel":  {Kind: Sentinel},
	"rediss+sentinel": {Kind: Sentinel, TLS: true},
	"redis+cluster":   {Kind: Cluster},
	"rediss+cluster":  {Kind: Cluster, TLS: true},
}

// Default ports.
const (
	serverPort   = "6379"
	sentinelPort = "26379"
)

// Parse reads the URL of a Redis:
//
//	redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]
//	redis+sentinel://[USER@]HOST[:PORT],HOST[:PORT].../MASTER[/DB]
//	redis+cluster://[USER@]HOST[:PORT],HOST[:PORT]...
//
// rediss instead of redis is TLS; valkey and valkeys mean the same. An error never
// quotes the URL: it may hold a password.
func Parse(raw string) (Target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.Replace(scheme, "valkey", "redis", 1)
	t, known := schemes[scheme]
	if !ok || !known {
		return Target{}, errors.New("the URL of Redis must begin with redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(authority+path, "?#") {
		return Target{}, errors.New("the URL of Redis has options after ? or #: there are none. In a password write them as %3F and %23")
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if err := t.credentials(authority[:at]); err != nil {
			return Target{}, err
		}
		authority = authority[at+1:]
	}
	if err := t.addresses(authority); err != nil {
		return Target{}, err
	}
	return t, t.path(strings.TrimSuffix(path, "/"))
}

// credentials reads USER[:PASSWORD].
func (t *Target) credentials(text string) (err error) {
	user, password, _ := strings.Cut(text, ":")
	if t.User, err = url.PathUnescape(user); err == nil {
		t.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return errors.New("the user or the password in the URL of Redis has a % that is not followed by two hexadecimal digits")
	}
	return nil
}

// addresses reads HOST[:PORT],...
func (t *Target) addresses(text string) error {
	all := strings.Split(text, ",")
	if t.Kind == Single && len(all) > 1 {
		return errors.New("the URL of Redis has several addresses: write redis+sentinel:// or redis+cluster://")
	}
	port := serverPort
	if t.Kind == Sentinel {
		port = sentinelPort
	}
	for _, address := range all {
		u, err := url.Parse("//" + address) // brackets of IPv6, digits of the port
		if err == nil && strings.Contains(u.Hostname(), ":") {
			_, err = netip.ParseAddr(u.Hostname()) // without brackets the end of the address may have been taken for a port
		}
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return errors.New("the URL of Redis has an address that is not HOST or HOST:PORT, with IPv6 in brackets. In a password write / as %2F and @ as %40")
		}
		number := port
		if u.Port() != "" {
			number = u.Port()
		}
		if n, err := strconv.Atoi(number); err != nil || n < 1 || n > 65535 {
			return errors.New("the URL of Redis has a port that is not a number from 1 to 65535")
		}
		t.Addresses = append(t.Addresses, net.JoinHostPort(u.Hostname(), number))
	}
	return nil
}

// path reads what follows the addresses.
func (t *Target) path(text string) error {
	db := text
	if t.Kind == Sentinel {
		if t.Master, db, _ = strings.Cut(text, "/"); t.Master == "" {
			return errors.New("the URL of the Sentinels does not name the master: write redis+sentinel://HOST:PORT/MASTER")
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	switch {
	case err != nil || n < 0:
		return errors.New("the URL of Redis has a database that is not a number")
	case t.Kind == Cluster && n != 0:
		return errors.New("the URL of Redis names a database, but Redis Cluster has only database 0")
	}
	t.DB = n
	return nil
}

// InClear reports whether other machines may be on the way to Redis, and could read and change what it
// sends: it has no TLS, and an address that is not of this machine. Sentinels and nodes of a cluster
// name others.
func (t Target) InClear() bool {
	return !t.TLS && (t.Kind != Single || slices.ContainsFunc(t.Addresses, func(address string) bool {
		host, _, _ := net.SplitHostPort(address)
		addr, err := netip.ParseAddr(host)
		return host != "localhost" && (err != nil || !addr.Unmap().IsLoopback())
	}))
}

// String returns the target for logs and errors, without user and password.
func (t Target) String() string {
	where := strings.Join(t.Addresses, ", ")
	switch t.Kind {
	case Sentinel:
		return fmt.Sprintf("master %s of the Sentinels %s", t.Master, where)
	case Cluster:
		return "cluster " + where
	}
	return where
}
