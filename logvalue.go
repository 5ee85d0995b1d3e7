package gocap

import (
	"fmt"
	"log/slog"
)

// LogValue shows the effective settings. Adapters are shown by their type
// alone, so that no address or password gets into a log.
func (o Options) LogValue() slog.Value {
	o = o.WithDefaults()
	return slog.GroupValue(
		slog.String("Storage", kindOf(o.Storage)),
		slog.String("Transport", kindOf(o.Transport)),
		slog.String("Registry", kindOf(o.Registry)),
		slog.Int("Subscriptions", len(o.Subscriptions)),
		slog.Int("Middleware", len(o.Middleware)),
		slog.String("Codec", kindOf(o.Codec)),
		slog.String("Logger", kindOf(o.Logger)),
		slog.String("Version", o.Version),
		slog.Any("AlsoVersions", o.AlsoVersions),
		slog.String("DefaultGroupName", o.DefaultGroupName),
		slog.String("GroupNamePrefix", o.GroupNamePrefix),
		slog.String("TopicNamePrefix", o.TopicNamePrefix),
		slog.Int("FailedRetryCount", o.FailedRetryCount),
		slog.Duration("FailedRetryInterval", o.FailedRetryInterval),
		slog.Int("ImmediateRetries", o.ImmediateRetries),
		slog.Bool("RetryBackoff", o.RetryBackoff != nil),
		slog.Bool("FailedThresholdCallback", o.FailedThresholdCallback != nil),
		slog.Duration("SucceedMessageExpiredAfter", o.SucceedMessageExpiredAfter),
		slog.Duration("FailedMessageExpiredAfter", o.FailedMessageExpiredAfter),
		slog.Duration("CollectorCleaningInterval", o.CollectorCleaningInterval),
		slog.Int("CollectorBatchSize", o.CollectorBatchSize),
		slog.Bool("UseStorageLock", o.UseStorageLock),
		slog.Bool("SendTrace", o.SendTrace != nil),
		slog.Bool("HandleTrace", o.HandleTrace != nil),
		slog.Duration("FallbackWindow", o.FallbackWindow),
		slog.Duration("UnhandledAfter", o.UnhandledAfter),
		slog.Bool("AllowUnroutable", o.AllowUnroutable),
		slog.Duration("PollInterval", o.PollInterval),
		slog.Int("ConsumerCount", o.ConsumerCount),
		slog.Int("Concurrency", o.Concurrency),
		slog.Int("SendWindow", o.SendWindow),
		slog.Int("BatchSize", o.BatchSize),
		slog.Duration("HandlerTimeout", o.HandlerTimeout),
		slog.Duration("StopTimeout", o.StopTimeout),
		slog.Bool("SkipMigrations", o.SkipMigrations),
		slog.Any("AllowedReplyTopics", o.AllowedReplyTopics),
		slog.Int("MaxBodySize", o.MaxBodySize),
		slog.Int("MaxHeaders", o.MaxHeaders),
	)
}

func kindOf(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%T", v)
}
