package cap

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/capbus/gocap"
	"github.com/capbus/gocap/internal/backoff"
	"github.com/capbus/gocap/storage"
)

const (
	// versionsEvery is how often rows that nobody will take are told of.
	versionsEvery = time.Hour
	// inspectTimeout bounds the reading of what waits.
	inspectTimeout = 5 * time.Second
	// countMost bounds what is counted for Health and the log.
	countMost = 1000
)

// versionWatch says, at the start and every hour, that there are rows of
// versions that no instance serves.
type versionWatch struct{ bus *Bus }

func (v *versionWatch) run(ctx context.Context) {
	wait := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for {
		if err := v.tell(ctx); err != nil && ctx.Err() == nil {
			if v.bus.log.Warn(ctx, "rows of other versions not looked for, trying again", "", slog.Any("err", err)); !wait.Sleep(ctx) {
				return
			}
			continue
		}
		wait.Reset()
		if !backoff.Sleep(ctx, versionsEvery) {
			return
		}
	}
}

func (v *versionWatch) tell(ctx context.Context) error {
	ins, ok := v.bus.opts.Storage.(storage.Inspector)
	if !ok {
		return nil
	}
	found, err := v.bus.otherVersions(ctx, ins)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Served {
			continue
		}
		v.bus.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "rows of a version that no instance serves; Options.AlsoVersions takes them over",
			slog.String("version", f.Version), slog.String("box", f.Box), slog.Int("rows", f.Rows))
	}
	return nil
}

// otherVersions finds the versions but the bus's own that have unfinished rows.
func (b *Bus) otherVersions(ctx context.Context, ins storage.Inspector) (found []gocap.VersionHealth, err error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	for _, box := range []storage.Box{storage.Outbox, storage.Inbox} {
		list, err := ins.Versions(ctx, box, countMost)
		if err != nil {
			return nil, fmt.Errorf("versions in %s: %w", box, err)
		}
		for _, v := range list {
			if v.Version == b.opts.Version {
				continue
			}
			also := b.engines.get() != nil && slices.Contains(b.opts.AlsoVersions, v.Version)
			found = append(found, gocap.VersionHealth{Version: v.Version, Box: box.String(), Rows: v.Rows, Served: v.Living || also})
		}
	}
	return found, nil
}
