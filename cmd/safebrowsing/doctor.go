package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

func doctor() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "find out why a configuration does not work, and what to do about it",
		Description: `Prints one line for each thing that must be right: the Corefile and the key in
it, the connection to the server, the clock, the folder for the lists, and the
memory. It sends one request, for the names of the server's lists, to each
endpoint; to Web Risk, which has no such request, it sends one without the key and
says what CoreDNS has noted about the key. With -offline it sends none. Run it on
the machine of CoreDNS and as its user: another user may have other rights to the
folder. The key is never printed.

With -endpoint in place of -corefile it examines a relay, or another server of your
own, as a new client on this machine would: it fetches each list and confirms one of
its entries, which may cost the relay one search. It sends Google's servers the
request for the names of the lists only.

With -redis it examines the Redis or Valkey that relays share: version, memory, TLS, which
relay fetches lists, and how old the lists are. It writes one key, which expires.

   safebrowsing doctor -corefile /etc/coredns/Corefile
   sudo -u coredns safebrowsing doctor -offline -corefile /etc/coredns/Corefile
   safebrowsing doctor -endpoint http://127.0.0.1:8099 -api-key-file client.key
   safebrowsing doctor -redis rediss://redis.internal:6379
   safebrowsing doctor -json -corefile Corefile | jq -r 'select(.status == "problem").advice'

The JSON of a check is {"check","status","text","advice"}; status is ok, warning,
problem or skipped. The exit status is 1 if there is a problem; warnings leave it
at 0.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "corefile", Usage: "the `FILE` to examine"},
			&cli.StringFlag{Name: "endpoint", Usage: "examine the server at this `URL`, or several separated by commas, without a Corefile"},
			&cli.StringFlag{Name: "api-key-file", Usage: "read the key for -endpoint from `FILE` (default: $" + config.KeyVariable + ")"},
			&cli.StringFlag{Name: "endpoint-ca", Usage: "trust only the authorities in `FILE` for -endpoint"},
			&cli.StringFlag{Name: "endpoint-cert", Usage: "the certificate for -endpoint and its key, two `FILES` with a comma"},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists that -endpoint must have, separated by commas (default: the plugin's default)"},
			&cli.StringFlag{Name: "resolver", Usage: "the `ADDRESSES` of name servers for the name in -endpoint, separated by commas"},
			&cli.BoolFlag{Name: "offline", Usage: "send nothing, neither to the server nor to a resolver"},
			jsonFlag(),
		}, redisFlags("examine")...),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return fmt.Errorf("doctor takes no argument such as %q, see safebrowsing doctor -h", c.Args().First())
			}
			d := &examination{console: newConsole(c), offline: c.Bool("offline"), resolvConf: "/etc/resolv.conf", secrets: []string{os.Getenv(config.KeyVariable)}}
			if _, err := redisConfig(c); err != nil {
				return err
			}
			switch {
			case onlyOne(c, "corefile", "endpoint", "redis") == "":
				return errors.New("doctor needs one of -corefile, -endpoint and -redis")
			case c.IsSet("redis"):
				return d.onlyRedis(ctx, c)
			case c.IsSet("endpoint"):
				return d.endpoints(ctx, c)
			}
			for _, flag := range endpointFlags {
				if c.IsSet(flag) {
					return fmt.Errorf("-%s goes with -endpoint: with -corefile the Corefile says it", flag)
				}
			}
			return d.corefile(ctx, c.String("corefile"))
		},
	}
}

// onlyOne returns the one flag of several that is given, or "".
func onlyOne(c *cli.Command, flags ...string) (only string) {
	for _, flag := range flags {
		switch {
		case c.IsSet(flag) && only != "":
			return ""
		case c.IsSet(flag):
			only = flag
		}
	}
	return only
}

// onlyRedis examines a Redis. It refuses flags that belong to something else.
func (e *examination) onlyRedis(ctx context.Context, c *cli.Command) error {
	for _, flag := range append(endpointFlags, "offline") {
		if c.IsSet(flag) {
			return fmt.Errorf("-%s does not go with -redis", flag)
		}
	}
	return e.redis(ctx, c)
}

// endpointFlags are the flags that only go with -endpoint.
var endpointFlags = []string{"api-key-file", "endpoint-ca", "endpoint-cert", "lists", "resolver"}

// The values of diagnosis.Status.
const (
	isOK      = "ok"
	isWarning = "warning" // it works, but perhaps not as the operator expects
	isProblem = "problem"
	isSkipped = "skipped"
)

// diagnosis is the result of one check.
type diagnosis struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Text   text   `json:"text"`   // the finding
	Advice text   `json:"advice"` // what the operator can do; "": nothing
}

// examination is one run of the doctor.
type examination struct {
	*console
	offline    bool
	resolvConf string   // file with the system's resolvers
	secrets    []string // tell replaces them
	blocks     []serverBlock
	path       string // of the Corefile; "": there is none
	endpoint   string // of several the one that is examined; else ""
	looked     bool   // for a loop
	asClient   bool   // there is no Corefile: lists are fetched and an entry is confirmed
	bad        bool
}

// tell prints a diagnosis without the keys that are known. What looks like another one is
// masked where it is printed.
func (e *examination) tell(d diagnosis) {
	if e.endpoint != "" {
		d.Text = text(e.endpoint+": ") + d.Text
	}
	if e.asClient {
		d.Advice = text(inFlags.Replace(string(d.Advice)))
	}
	for _, t := range []*text{&d.Text, &d.Advice} {
		for _, secret := range e.secrets {
			if secret != "" {
				*t = text(strings.ReplaceAll(string(*t), secret, "(the key)"))
			}
		}
	}
	e.bad = e.bad || d.Status == isProblem
	if e.json {
		e.object(d)
		return
	}
	e.printf("%-8s %-9s %s\n", d.Status, d.Check, shown(string(d.Text)))
	if d.Advice != "" {
		e.printf("%18s → %s\n", "", shown(string(d.Advice)))
	}
}

// corefile examines a Corefile, its own lists and its engines.
func (e *examination) corefile(ctx context.Context, path string) error {
	e.path = path
	if _, err := os.Stat(path); err != nil {
		return err
	}
	var err error
	if e.blocks, err = readCorefile(path); err != nil {
		e.tell(diagnosis{"corefile", isProblem, text(err.Error()), "correct the Corefile, or the file that the line names, then run doctor again: nothing else has been examined"})
		return e.end(e.bad)
	}
	defer closeBlocks(e.blocks)
	with := 0
	for _, b := range e.blocks {
		if b.Offline != nil {
			with++
			e.secrets = append(e.secrets, b.Key())
		}
	}
	e.tell(diagnosis{"corefile", isOK, text(fmt.Sprintf("%d of %s %s safebrowsing", with,
		count(len(e.blocks), "server block", "server blocks"), plural(with, "has", "have"))), ""})
	for _, warning := range warningsOf(e.blocks) {
		e.tell(diagnosis{"corefile", isWarning, text(warning), "change the line if this is not what you want"})
	}
	e.extended()
	e.ownLists()
	e.pauses(time.Now())
	for _, b := range enginesOf(e.blocks) {
		e.engine(ctx, b.Offline)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return e.end(e.bad)
}

// engine examines one engine: key, server, folder and lists.
func (e *examination) engine(ctx context.Context, o *Offline) {
	if end := o.Settings().Ending(); o.Endpoint() != "" && !end.At.IsZero() {
		e.tell(endingDiagnosis(end, time.Now()))
	}
	e.tell(keyDiagnosis(o, time.Now()))
	e.secrecy(o, e.path)
	if o.Key() != "" || !o.Settings().Google() {
		e.servers(ctx, o)
	}
	if o.Endpoint() != "" {
		e.folder(o)
		e.protection(o)
		e.budget(o, time.Now())
	}
}

// endingDiagnosis says that Google ends the protocol, or has ended it.
func endingDiagnosis(end protocol.Ending, now time.Time) diagnosis {
	status := isWarning
	if end.Over(now) {
		status = isProblem
	}
	return diagnosis{"protocol", status, text(end.Text(now)), text(end.Advice())}
}
