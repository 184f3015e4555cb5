package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/internal/task"
)

// topicSetting is one line of `topics config`.
type topicSetting struct {
	Name      string  `json:"name"`
	Value     *string `json:"value"` // null if the broker hides it
	Source    string  `json:"source"`
	ReadOnly  bool    `json:"read_only"`
	Sensitive bool    `json:"sensitive"`
}

// settingChanges are the flags of `topics config`.
type settingChanges struct {
	set   []string // name=value
	unset []string
	all   bool
}

func topicsConfigCommand(a *app) *cobra.Command {
	var ch settingChanges
	cmd := &cobra.Command{
		Use:   "config NAME",
		Short: "Show or change the settings of a topic",
		Long: "Show or change the settings of a topic.\n\nWithout flags it shows what differs from the brokers' settings, with --all everything.\n" +
			"-c sets and --unset goes back to the brokers' setting; what is not named stays as it is.",
		Example: "  ottla topics config events --all\n  ottla topics config events -c retention.ms=3600000 -o json",
		Args:    takes("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return configTopic(ctx, a, c, args[0], ch) })
		},
	}
	cmd.Flags().StringArrayVarP(&ch.set, "config-entry", "c", nil, "set `NAME=VALUE`; repeatable")
	cmd.Flags().StringArrayVar(&ch.unset, "unset", nil, "go back to the brokers' setting of `NAME`; repeatable")
	cmd.Flags().BoolVar(&ch.all, "all", false, "show also what is the brokers' setting")
	return outputFlag(cmd)
}

func configTopic(ctx context.Context, a *app, c *client, name string, ch settingChanges) error {
	if _, err := existing(ctx, c, []string{name}); err != nil {
		return err
	}
	if len(ch.set)+len(ch.unset) > 0 {
		if err := changeSettings(a, c, name, ch); err != nil {
			return err
		}
	}
	list, err := shownSettings(ctx, c, name, ch)
	if err != nil {
		return err
	}
	if a.stdout.json {
		return a.stdout.document(list)
	}
	var rows [][]string
	for _, s := range list {
		value := "(hidden)"
		if s.Value != nil {
			value = *s.Value
		}
		rows = append(rows, []string{s.Name, value, s.Source})
	}
	return a.stdout.table([]string{"NAME", "VALUE", "SOURCE"}, rows)
}

// shownSettings reads the settings until they show what was changed, for two
// seconds at most: a broker learns of a change a moment after it is accepted.
func shownSettings(ctx context.Context, c *client, name string, ch settingChanges) ([]topicSetting, error) {
	for end := time.Now().Add(2 * time.Second); ; {
		list, err := settingsOf(ctx, c, name, ch.all)
		if err != nil || ch.shownIn(list) || time.Now().After(end) {
			return list, err
		}
		if err := task.Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// shownIn reports whether a list has the changes.
func (ch *settingChanges) shownIn(list []topicSetting) bool {
	own := map[string]string{}
	for _, s := range list {
		if s.Value != nil && s.Source == "dynamic_topic_config" {
			own[s.Name] = *s.Value
		}
	}
	for _, entry := range ch.set {
		key, value, _ := strings.Cut(entry, "=")
		if own[key] != value {
			return false
		}
	}
	return !slices.ContainsFunc(ch.unset, func(key string) bool { _, has := own[key]; return has })
}

// changeSettings makes the changes: all or none.
func changeSettings(a *app, c *client, name string, ch settingChanges) error {
	change := admin.ConfigChange{Resource: admin.TopicResource(name), Set: map[string]string{}, Unset: ch.unset}
	for _, entry := range ch.set {
		key, value, ok := strings.Cut(entry, "=")
		if !ok {
			return usagef("-c %s: expected NAME=VALUE", entry)
		}
		change.Set[key] = value
	}
	work, cancel := a.changing()
	defer cancel()
	err := c.admin().AlterConfigs(work, []admin.ConfigChange{change}, admin.Accepted).Err()
	return changed(on(notDone(bare(err), "topic "+name, "changed"), "AlterConfigs", "topic "+name))
}

// settingsOf reads the settings of a topic, by name.
func settingsOf(ctx context.Context, c *client, name string, all bool) ([]topicSetting, error) {
	res := c.admin().DescribeConfigs(ctx, []admin.Resource{admin.TopicResource(name)})
	if err := res.Err(); err != nil {
		return nil, on(bare(err), "DescribeConfigs", "topic "+name)
	}
	list := []topicSetting{}
	for _, s := range res[0].Value {
		if all || s.Source == kmsg.ConfigSourceDynamicTopicConfig || s.Source <= 0 && !s.Default {
			list = append(list, topicSetting{
				Name: s.Name, Value: s.Value, Source: strings.ToLower(s.Source.String()), ReadOnly: s.ReadOnly, Sensitive: s.Sensitive,
			})
		}
	}
	return list, nil
}
