package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// buildVersion is what `ottla version` prints.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// MaxAPI is the highest key of Kafka's protocol that this build knows.
	MaxAPI int16 `json:"max_api"`
}

func versionCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:     "version",
		Short:   "Print the version of ottla",
		Example: "  ottla version\n  ottla version -o json",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if a.stdout.json {
				return a.stdout.document(v)
			}
			text := "ottla " + v.Version
			if v.Revision != "" {
				text += " (" + v.Revision
				if v.Modified {
					text += ", modified"
				}
				text += ")"
			}
			return a.stdout.printf("%s %s %s, Kafka APIs 0 to %d", text, v.Go, v.Platform, v.MaxAPI)
		},
	})
}

// readVersion asks the binary.
func readVersion() buildVersion {
	v := buildVersion{
		Version: "(devel)", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, MaxAPI: kmsg.MaxKey,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
