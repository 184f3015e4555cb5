package ottlatest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// verification is a property of real brokers that kfake does not list: an
// append in a transaction is checked with the coordinator (KIP-890). kfake
// refuses fenced producers everywhere, so it is true here too.
const verification = "transaction.partition.verification.enable"

// addVerification completes the answer to a request for a broker's
// configuration.
func addVerification(req *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse) {
	for i := range resp.Resources {
		r := &resp.Resources[i]
		if r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ErrorCode != 0 {
			continue
		}
		wanted := slices.ContainsFunc(req.Resources, func(q kmsg.DescribeConfigsRequestResource) bool {
			return q.ResourceType == r.ResourceType && q.ResourceName == r.ResourceName && (q.ConfigNames == nil || slices.Contains(q.ConfigNames, verification))
		})
		if !wanted {
			continue
		}
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value = verification, kmsg.StringPtr("true")
		c.IsDefault, c.Source, c.ConfigType = true, kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeBoolean
		r.Configs = append(r.Configs, c)
	}
}
