package safebrowsing

import (
	"context"
	"sync/atomic"

	"github.com/coredns/coredns/plugin/metadata"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// shownDecision is the decision about a query as metadata shows it. It is nil, and
// costs nothing, if no plugin reads metadata.
type shownDecision struct {
	decision atomic.Pointer[lookup.Decision] // nil: not decided yet
}

// labels are the labels of metadata, each with its value for a decision.
var labels = []struct {
	name string
	text func(*lookup.Decision) string
}{
	{say.Plugin + "/verdict", func(d *lookup.Decision) string { return d.Verdict.String() }},
	{say.Plugin + "/threat", func(d *lookup.Decision) string { return d.Threat.String() }},
	{say.Plugin + "/list", func(d *lookup.Decision) string { return d.List }},
	{say.Plugin + "/expression", func(d *lookup.Decision) string { return d.Expression }},
	{say.Plugin + "/decided_by", func(d *lookup.Decision) string { return d.By.String() }},
}

// announce adds the labels to the metadata, if the metadata plugin is in use. It is
// called before the decision: plugins that run meanwhile may read them too.
func announce(ctx context.Context) *shownDecision {
	if metadata.ValueFuncs(ctx) == nil {
		return nil
	}
	shown := new(shownDecision)
	for _, label := range labels {
		metadata.SetValueFunc(ctx, label.name, func() string {
			if d := shown.decision.Load(); d != nil {
				return label.text(d)
			}
			return ""
		})
	}
	return shown
}

// set stores a decision, unless a graver one has been made about the same query,
// such as one about a target in its answer.
func (shown *shownDecision) set(d lookup.Decision) {
	if shown == nil {
		return
	}
	kept := d // a copy of its own, so that d does not escape where metadata is off
	for {
		old := shown.decision.Load()
		if old != nil && !kept.Graver(*old) || shown.decision.CompareAndSwap(old, &kept) {
			return
		}
	}
}

// ownMetadata returns a context with a copy of the metadata in ctx, which is a map
// without a lock. A plugin that runs in another goroutine needs its own.
func ownMetadata(ctx context.Context) context.Context {
	if metadata.ValueFuncs(ctx) == nil {
		return ctx
	}
	own := metadata.ContextWithMetadata(ctx)
	addMetadata(own, ctx)
	return own
}

// addMetadata adds the metadata in from to that in ctx.
func addMetadata(ctx, from context.Context) {
	for label, value := range metadata.ValueFuncs(from) {
		metadata.SetValueFunc(ctx, label, value)
	}
}
