package cluster

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// splitByResource is a request about config resources as one whose items go to
// the broker that they are about.
func splitByResource(req kmsg.Request) split {
	switch r := req.(type) {
	case *kmsg.DescribeConfigsRequest:
		return newKeySplit(describeConfigsShape(r), r.Resources)
	case *kmsg.AlterConfigsRequest:
		return newKeySplit(alterConfigsShape(r), r.Resources)
	case *kmsg.IncrementalAlterConfigsRequest:
		return newKeySplit(incrementalAlterConfigsShape(r), r.Resources)
	}
	return nil
}

// resourceKey tells resources of one request apart.
func resourceKey(kind kmsg.ConfigResourceType, name string) string {
	return strconv.Itoa(int(kind)) + "/" + name
}

// describeConfigsShape is how DescribeConfigs holds its items.
func describeConfigsShape(req *kmsg.DescribeConfigsRequest) keyShape[kmsg.DescribeConfigsRequestResource, kmsg.DescribeConfigsResponseResource] {
	return keyShape[kmsg.DescribeConfigsRequestResource, kmsg.DescribeConfigsResponseResource]{
		key: func(q *kmsg.DescribeConfigsRequestResource) string {
			return resourceKey(q.ResourceType, q.ResourceName)
		},
		like: func(q *kmsg.DescribeConfigsRequestResource) kmsg.DescribeConfigsResponseResource {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ResourceType, r.ResourceName = q.ResourceType, q.ResourceName
			return r
		},
		rkey: func(r *kmsg.DescribeConfigsResponseResource) string {
			return resourceKey(r.ResourceType, r.ResourceName)
		},
		code: func(r *kmsg.DescribeConfigsResponseResource) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.DescribeConfigsResponseResource) **string { return &r.ErrorMessage },
		wrap: func(qs []kmsg.DescribeConfigsRequestResource) kmsg.Request {
			r := *req
			r.Resources = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DescribeConfigsResponseResource {
			return r.(*kmsg.DescribeConfigsResponse).Resources
		},
		merge: func(rs []kmsg.DescribeConfigsResponseResource) kmsg.Response {
			r := kmsg.NewPtrDescribeConfigsResponse()
			r.Resources = rs
			return r
		},
	}
}

// alterConfigsShape is how AlterConfigs holds its items.
func alterConfigsShape(req *kmsg.AlterConfigsRequest) keyShape[kmsg.AlterConfigsRequestResource, kmsg.AlterConfigsResponseResource] {
	return keyShape[kmsg.AlterConfigsRequestResource, kmsg.AlterConfigsResponseResource]{
		key: func(q *kmsg.AlterConfigsRequestResource) string { return resourceKey(q.ResourceType, q.ResourceName) },
		like: func(q *kmsg.AlterConfigsRequestResource) kmsg.AlterConfigsResponseResource {
			r := kmsg.NewAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = q.ResourceType, q.ResourceName
			return r
		},
		rkey: func(r *kmsg.AlterConfigsResponseResource) string { return resourceKey(r.ResourceType, r.ResourceName) },
		code: func(r *kmsg.AlterConfigsResponseResource) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.AlterConfigsResponseResource) **string { return &r.ErrorMessage },
		wrap: func(qs []kmsg.AlterConfigsRequestResource) kmsg.Request {
			r := *req
			r.Resources = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.AlterConfigsResponseResource {
			return r.(*kmsg.AlterConfigsResponse).Resources
		},
		merge: func(rs []kmsg.AlterConfigsResponseResource) kmsg.Response {
			r := kmsg.NewPtrAlterConfigsResponse()
			r.Resources = rs
			return r
		},
	}
}

// incrementalAlterConfigsShape is how IncrementalAlterConfigs holds its items.
func incrementalAlterConfigsShape(req *kmsg.IncrementalAlterConfigsRequest) keyShape[kmsg.IncrementalAlterConfigsRequestResource, kmsg.IncrementalAlterConfigsResponseResource] {
	return keyShape[kmsg.IncrementalAlterConfigsRequestResource, kmsg.IncrementalAlterConfigsResponseResource]{
		key: func(q *kmsg.IncrementalAlterConfigsRequestResource) string {
			return resourceKey(q.ResourceType, q.ResourceName)
		},
		like: func(q *kmsg.IncrementalAlterConfigsRequestResource) kmsg.IncrementalAlterConfigsResponseResource {
			r := kmsg.NewIncrementalAlterConfigsResponseResource()
			r.ResourceType, r.ResourceName = q.ResourceType, q.ResourceName
			return r
		},
		rkey: func(r *kmsg.IncrementalAlterConfigsResponseResource) string {
			return resourceKey(r.ResourceType, r.ResourceName)
		},
		code: func(r *kmsg.IncrementalAlterConfigsResponseResource) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.IncrementalAlterConfigsResponseResource) **string { return &r.ErrorMessage },
		wrap: func(qs []kmsg.IncrementalAlterConfigsRequestResource) kmsg.Request {
			r := *req
			r.Resources = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.IncrementalAlterConfigsResponseResource {
			return r.(*kmsg.IncrementalAlterConfigsResponse).Resources
		},
		merge: func(rs []kmsg.IncrementalAlterConfigsResponseResource) kmsg.Response {
			r := kmsg.NewPtrIncrementalAlterConfigsResponse()
			r.Resources = rs
			return r
		},
	}
}
