package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func doctor() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "find out why a configuration does not work, and what to do about it",
		Description: `Prints one line for each thing that must be right: what validate says, whether
CoreDNS runs and protects, and the connection to the server. It sends one request, for
the names of the server's lists, to each endpoint; to Web Risk, which has no such request,
it sends one without the key and says what CoreDNS has noted about the key. It asks
the running server for the names by which clients leave it. With -offline it sends none. Run it on the machine of CoreDNS and as its user: another user may
have other rights to the folder. The key is never printed. Without -corefile it examines
the Corefile that safebrowsing validate does.

With -endpoint instead of -corefile it examines a relay, or another server of your
own, as a new client on this machine would: it fetches each list and confirms one of
its entries, which may cost the relay one search. It sends Google's servers the
request for the names of the lists only.

safebrowsing-relay doctor examines the Redis or Valkey that relays share.

   sudo safebrowsing doctor
   safebrowsing doctor -corefile /etc/coredns/Corefile
   sudo -u coredns safebrowsing doctor -offline -corefile /etc/coredns/Corefile
   safebrowsing doctor -endpoint http://127.0.0.1:8099 -api-key-file client.key
   safebrowsing doctor -json -corefile Corefile | jq -r 'select(.status == "problem").advice'

The JSON of a check is {"check","status","text","advice"}; status is ok, warning,
problem or skipped. The exit status is 1 if there is a problem; warnings leave it
at 0.`,
		Flags: []cli.Flag{
			corefileFlag(),
			&cli.StringFlag{Name: "endpoint", Usage: "examine the server at this `URL`, or several separated by commas, without a Corefile"},
			&cli.StringFlag{Name: "api-key-file", Usage: "read the key for -endpoint from `FILE` (default: $" + config.KeyVariable + ")"},
			&cli.StringFlag{Name: "endpoint-ca", Usage: "trust only the authorities in `FILE` for -endpoint"},
			&cli.StringFlag{Name: "endpoint-cert", Usage: "the certificate for -endpoint and its key, two `FILES` with a comma"},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of lists that -endpoint must have, separated by commas (default: the plugin's default)"},
			&cli.StringFlag{Name: "resolver", Usage: "the `ADDRESSES` of name servers for the name in -endpoint, separated by commas"},
			&cli.BoolFlag{Name: "offline", Usage: "send nothing, neither to the server nor to a resolver"},
			&cli.StringFlag{Name: "redis", Hidden: true},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := alone(c, nil); err != nil {
				return err
			}
			d := &examination{offline: c.Bool("offline"), resolvConf: config.ResolvConf}
			d.W, d.JSON, d.Secrets = c.Root().Writer, c.Bool("json"), []string{strings.TrimSpace(os.Getenv(config.KeyVariable))}
			switch {
			case c.IsSet("redis"):
				return errors.New("-redis is for the relay's program: run safebrowsing-relay doctor with the same flags")
			case c.IsSet("corefile") && c.IsSet("endpoint"):
				return errors.New("-corefile and -endpoint are both given: keep one of the two")
			case c.IsSet("endpoint"):
				return d.endpoints(ctx, c)
			}
			for _, flag := range endpointFlags {
				if c.IsSet(flag) {
					return fmt.Errorf("-%s goes with -endpoint: with -corefile the Corefile says it", flag)
				}
			}
			d.given = c.IsSet("corefile")
			return d.corefile(ctx, corefileOf(c))
		},
	}
}

func validate() *cli.Command {
	return &cli.Command{
		Name:      "validate",
		Usage:     "examine a Corefile before CoreDNS starts",
		ArgsUsage: "[COREFILE]",
		Description: `Prints one line for each thing that can be known before a start, and sends nothing:
the Corefile with its warnings, the form of the key and who may read it, the folders, the
ports, who is answered, the lists of your own, and the memory for the lists. It says
nothing about a CoreDNS that runs: see status and doctor. Without COREFILE it takes
Corefile in this folder, else the one of /etc/coredns-safebrowsing or /etc/coredns.

   sudo safebrowsing validate
   safebrowsing validate Corefile

The last line says how many problems there are, and where to start. The exit status is 1 if
there is a problem; warnings leave it at 0.`,
		Flags: []cli.Flag{corefileFlag(), jsonFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() > 1 || c.NArg() > 0 && c.IsSet("corefile") {
				return errors.New("validate takes one Corefile, see safebrowsing validate -h")
			}
			if c.NArg() > 0 {
				if err := c.Set("corefile", c.Args().First()); err != nil {
					return err
				}
			}
			d := &examination{offline: true, before: true, resolvConf: config.ResolvConf}
			d.W, d.JSON, d.Secrets = c.Root().Writer, c.Bool("json"), []string{strings.TrimSpace(os.Getenv(config.KeyVariable))}
			return d.corefile(ctx, corefileOf(c))
		},
	}
}

// endpointFlags are the flags that only go with -endpoint.
var endpointFlags = []string{"api-key-file", "endpoint-ca", "endpoint-cert", "lists", "resolver"}

// The values of diagnosis.Status.
const (
	isOK      = say.OK
	isWarning = say.Warning
	isProblem = say.Problem
	isSkipped = say.Skipped
)

// diagnosis is the result of one check.
type diagnosis say.Diagnosis

// examination is one run of the doctor.
type examination struct {
	say.Doctor
	offline    bool
	before     bool   // only what can be known before a start
	given      bool   // the Corefile is, by a flag: its ports may be another machine's
	answers    bool   // the server that runs does
	resolvConf string // file with the system's resolvers
	blocks     []serverBlock
	path       string // of the Corefile; "": there is none
	endpoint   string // of several the one that is examined; else ""
	byName     bool   // the name of a server had to be resolved
	asClient   bool   // there is no Corefile: lists are fetched and an entry is confirmed
	dial       dialer // nil: the network

	interrupted func() error // nil: it cannot be
}

// tell prints a diagnosis. After Ctrl-C it prints none: what fails then is nobody's fault.
func (e *examination) tell(d diagnosis) {
	if e.before && d.Status == isSkipped || e.interrupted != nil && e.interrupted() != nil {
		return
	}
	if e.endpoint != "" {
		d.Text = text(e.endpoint+": ") + d.Text
	}
	e.Tell(say.Diagnosis(d))
}

// corefile examines a Corefile, its own lists and its engines.
func (e *examination) corefile(ctx context.Context, path string) error {
	e.interrupted = ctx.Err
	if e.path = path; path == "" {
		return errors.New("there is no Corefile here: use -corefile")
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	var err error
	if e.blocks, err = readCorefile(path); err != nil {
		e.tell(diagnosis{"corefile", isProblem, text(err.Error()), "correct the Corefile, or the file that the line names, then run this again: nothing else has been examined"})
		return e.Sum()
	}
	defer closeBlocks(e.blocks)
	for _, b := range ours(e.blocks) {
		e.Secrets = append(e.Secrets, b.Config.Secret)
	}
	with := len(ours(e.blocks))
	e.tell(diagnosis{"corefile", isOK, text(fmt.Sprintf("%d of %s %s safebrowsing", with,
		say.Count(len(e.blocks), "server block", "server blocks"), say.Plural(with, "has", "have"))), ""})
	for _, warning := range warningsOf(e.blocks) {
		e.tell(diagnosis{"corefile", isWarning, text(warning), "change the line if this is not what you want"})
	}
	e.open()
	e.upstreams()
	e.answers = !e.before && !e.offline && e.running(ctx)
	if !e.given && !e.answers {
		e.portsOf()
	}
	e.extended()
	e.ownLists()
	if !e.before && !e.answers {
		e.pauses(time.Now())
	}
	e.keeps(ctx)
	for _, b := range enginesOf(e.blocks) {
		e.engine(ctx, b.Block)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.Sum()
}

// engine examines one engine: key, server, folder and lists.
func (e *examination) engine(ctx context.Context, o *block.Block) {
	if end := o.Settings.Ending(); o.Config.Online && !end.At.IsZero() {
		e.tell(endingDiagnosis(end, time.Now()))
	}
	e.tell(keyDiagnosis(o, time.Now()))
	e.secrecy(o)
	if o.Config.Secret != "" || !o.Settings.Google() {
		e.servers(ctx, o)
	}
	if o.Config.Online {
		e.folder(o)
		e.unlimited(o)
		if !e.before && !e.answers { // what CoreDNS has saved tells of one that has run
			e.protection(o)
			e.budget(o, time.Now())
		}
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
