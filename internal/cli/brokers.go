package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// clusterInfo is the document of `brokers`.
type clusterInfo struct {
	ClusterID  string        `json:"cluster_id"`
	Controller int32         `json:"controller"`
	Brokers    []brokerInfo  `json:"brokers"`
	Features   []featureInfo `json:"features,omitempty"` // with --features
}

// brokerInfo is one broker.
type brokerInfo struct {
	ID          int32      `json:"id"`
	Host        string     `json:"host"`
	Port        int32      `json:"port"`
	Rack        *string    `json:"rack"`
	Controller  bool       `json:"controller"`
	APIVersions []apiRange `json:"api_versions,omitempty"` // with --api-versions
}

// apiRange is what a broker speaks of one API; Client* are -1 if this build
// does not know it.
type apiRange struct {
	Key       int16  `json:"key"`
	Name      string `json:"name"`
	Min       int16  `json:"min"`
	Max       int16  `json:"max"`
	ClientMax int16  `json:"client_max"`
}

// featureInfo is a feature of the cluster (KIP-584); Level is 0 if it is not
// switched on.
type featureInfo struct {
	Name  string `json:"name"`
	Min   int16  `json:"min"`
	Max   int16  `json:"max"`
	Level int16  `json:"level"`
}

// clusterFlags are the flags of `brokers`.
type clusterFlags struct{ features, versions bool }

func brokersCommand(a *app) *cobra.Command {
	var ask clusterFlags
	cmd := &cobra.Command{
		Use:     "brokers",
		Short:   "Show the brokers of the cluster",
		Example: "  ottla brokers\n  ottla brokers --api-versions --features -o json",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error {
				info, err := readCluster(ctx, c)
				if err == nil && ask.features {
					err = info.readFeatures(ctx, c)
				}
				if err == nil && ask.versions {
					err = info.readVersions(ctx, c)
				}
				if err != nil {
					return err
				}
				return printCluster(a, info, ask)
			})
		},
	}
	cmd.Flags().BoolVar(&ask.features, "features", false, "show the features of the cluster and their levels instead")
	cmd.Flags().BoolVar(&ask.versions, "api-versions", false, "show what each broker speaks instead")
	return outputFlag(cmd)
}

// readCluster asks who the brokers are, or the controllers.
func readCluster(ctx context.Context, c *client) (*clusterInfo, error) {
	found, err := c.admin().DescribeCluster(ctx)
	if err != nil {
		return nil, err
	}
	info := &clusterInfo{ClusterID: found.ID, Controller: int32(found.Controller), Brokers: []brokerInfo{}}
	for _, b := range found.Brokers {
		one := brokerInfo{ID: int32(b.ID), Host: b.Host, Port: b.Port, Controller: b.ID == found.Controller}
		if b.Rack != "" {
			one.Rack = &b.Rack
		}
		info.Brokers = append(info.Brokers, one)
	}
	slices.SortFunc(info.Brokers, func(a, b brokerInfo) int { return int(a.ID - b.ID) })
	return info, nil
}

// askVersions asks one broker what it speaks.
func askVersions(ctx context.Context, c asker) (*kmsg.ApiVersionsResponse, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "ottla", softwareVersion()
	resp, err := req.RequestWith(ctx, c)
	if err == nil {
		err = kafka.CodeError(resp.ErrorCode, nil)
	}
	return resp, err
}

// softwareVersion is this build's version in the form that brokers accept.
func softwareVersion() string {
	v := strings.Trim(readVersion().Version, "()")
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, v)
}

// readFeatures asks any broker for the features.
func (i *clusterInfo) readFeatures(ctx context.Context, c asker) error {
	resp, err := askVersions(ctx, c)
	if err != nil {
		return err
	}
	levels := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	i.Features = []featureInfo{}
	for _, f := range resp.SupportedFeatures {
		i.Features = append(i.Features, featureInfo{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion, Level: levels[f.Name]})
	}
	slices.SortFunc(i.Features, func(a, b featureInfo) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// readVersions asks every broker what it speaks.
func (i *clusterInfo) readVersions(ctx context.Context, c *client) error {
	for n := range i.Brokers {
		b := &i.Brokers[n]
		resp, err := askVersions(ctx, c.broker(b.ID))
		if err != nil {
			return fmt.Errorf("broker %d: %w", b.ID, err)
		}
		for _, k := range resp.ApiKeys {
			one := apiRange{Key: k.ApiKey, Name: kmsg.NameForKey(k.ApiKey), Min: k.MinVersion, Max: k.MaxVersion, ClientMax: -1}
			if req := kmsg.RequestForKey(k.ApiKey); req != nil {
				one.ClientMax = req.MaxVersion()
			}
			b.APIVersions = append(b.APIVersions, one)
		}
	}
	return nil
}

// printCluster prints what was asked for.
func printCluster(a *app, info *clusterInfo, ask clusterFlags) error {
	if a.stdout.json {
		return a.stdout.document(info)
	}
	var rows [][]string
	if ask.features {
		for _, f := range info.Features {
			rows = append(rows, []string{f.Name, itoa(int(f.Level)), itoa(int(f.Min)), itoa(int(f.Max))})
		}
		if err := a.stdout.table([]string{"FEATURE", "LEVEL", "MIN", "MAX"}, rows); err != nil || !ask.versions {
			return err
		}
		rows = nil
	}
	if ask.versions {
		for _, b := range info.Brokers {
			for _, v := range b.APIVersions {
				rows = append(rows, []string{itoa(int(b.ID)), itoa(int(v.Key)), v.Name, itoa(int(v.Min)), itoa(int(v.Max)), itoa(int(v.ClientMax))})
			}
		}
		return a.stdout.table([]string{"BROKER", "KEY", "API", "MIN", "MAX", "OTTLA"}, rows)
	}
	for _, b := range info.Brokers {
		rack, role := "-", "-"
		if b.Rack != nil {
			rack = *b.Rack
		}
		if b.Controller {
			role = "controller"
		}
		rows = append(rows, []string{itoa(int(b.ID)), kafka.JoinAddr(b.Host, b.Port), rack, role})
	}
	return a.stdout.table([]string{"ID", "ADDRESS", "RACK", "CONTROLLER"}, rows)
}
