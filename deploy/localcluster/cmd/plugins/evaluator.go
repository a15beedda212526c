package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// probe is one plugin with the arguments it has when a case gives none.
type probe struct {
	key       string // the plugin's name, and the scoring strategy where it has several
	plugin    string
	arguments string
	filters   bool
	scores    bool
}

const (
	leastAllocated = `{"scoringStrategy": {"type": "LeastAllocated"}}`
	mostAllocated  = `{"scoringStrategy": {"type": "MostAllocated"}}`
	toCapacity     = `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape":
		[{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`
)

var probes = []probe{
	{key: names.NodeUnschedulable, plugin: names.NodeUnschedulable, filters: true},
	{key: names.NodeName, plugin: names.NodeName, filters: true},
	{key: names.TaintToleration, plugin: names.TaintToleration, filters: true, scores: true},
	{key: names.NodeAffinity, plugin: names.NodeAffinity, arguments: "{}", filters: true, scores: true},
	{key: names.NodePorts, plugin: names.NodePorts, filters: true},
	{key: names.NodeResourcesFit, plugin: names.NodeResourcesFit, arguments: "{}", filters: true},
	{key: names.NodeResourcesFit + ":LeastAllocated", plugin: names.NodeResourcesFit, arguments: leastAllocated, scores: true},
	{key: names.NodeResourcesFit + ":MostAllocated", plugin: names.NodeResourcesFit, arguments: mostAllocated, scores: true},
	{key: names.NodeResourcesFit + ":RequestedToCapacityRatio", plugin: names.NodeResourcesFit, arguments: toCapacity, scores: true},
	{key: names.NodeResourcesBalancedAllocation, plugin: names.NodeResourcesBalancedAllocation, arguments: "{}", scores: true},
	{key: names.VolumeRestrictions, plugin: names.VolumeRestrictions, filters: true},
	{key: names.NodeVolumeLimits, plugin: names.NodeVolumeLimits, filters: true},
	{key: names.VolumeZone, plugin: names.VolumeZone, filters: true},
	{key: names.VolumeBinding, plugin: names.VolumeBinding, arguments: "{}", filters: true},
	{key: names.NodeDeclaredFeatures, plugin: names.NodeDeclaredFeatures, filters: true},
	{key: names.PodTopologySpread, plugin: names.PodTopologySpread, arguments: "{}", filters: true, scores: true},
	{key: names.InterPodAffinity, plugin: names.InterPodAffinity, arguments: "{}", filters: true, scores: true},
	{key: names.ImageLocality, plugin: names.ImageLocality, scores: true},
}

// maxKept bounds the plugins that are kept for arguments seen before.
const maxKept = 4096

// evaluator runs plugins on one case at a time.
type evaluator struct {
	ctx      context.Context
	cluster  *cluster
	handle   framework.Framework
	registry frameworkruntime.Registry
	kept     map[string]fwk.Plugin
}

func newEvaluator(ctx context.Context) (*evaluator, error) {
	metrics.Register()
	ctx = klog.NewContext(ctx, logr.Discard())
	made := newCluster()
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithSnapshotSharedLister(made),
		frameworkruntime.WithInformerFactory(made.factory),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(made.factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSharedDRAManager(withoutDevices{}),
		frameworkruntime.WithParallelism(1))
	if err != nil {
		return nil, fmt.Errorf("making the framework: %w", err)
	}
	return &evaluator{ctx, made, handle, plugins.NewInTreeRegistry(), map[string]fwk.Plugin{}}, nil
}

// withoutDevices is the manager of dynamic resource allocation of a cluster
// that has no device classes: no extended resource comes from one.
type withoutDevices struct{ fwk.SharedDRAManager }

func (withoutDevices) DeviceClassResolver() fwk.DeviceClassResolver { return noClasses{} }

type noClasses struct{}

func (noClasses) GetDeviceClass(corev1.ResourceName) *resourcev1.DeviceClass { return nil }

// plugin gives the plugin of a probe with these arguments, which are completed
// with upstream's defaults. It is made once.
func (e *evaluator) plugin(asked probe, arguments string) (fwk.Plugin, error) {
	key := asked.plugin + arguments
	if made, kept := e.kept[key]; kept {
		return made, nil
	}
	var decoded runtime.Object
	if arguments != "" {
		kind := configv1.SchemeGroupVersion.WithKind(asked.plugin + "Args")
		var err error
		if decoded, _, err = scheme.Codecs.UniversalDecoder().Decode([]byte(arguments), &kind, nil); err != nil {
			return nil, fmt.Errorf("reading the arguments of %s: %w", asked.key, err)
		}
	}
	made, err := e.registry[asked.plugin](e.ctx, decoded, e.handle)
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", asked.key, err)
	}
	if len(e.kept) >= maxKept {
		clear(e.kept)
	}
	e.kept[key] = made
	return made, nil
}

// verdict is what a filter says of a node. Skip means that the plugin says in
// advance that it has nothing against any node, so that it isn't asked.
type verdict struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
}

// points are what a score says of nodes, normalised over them. Skip means that
// the plugin says in advance that it doesn't tell nodes apart.
type points struct {
	Skip  bool             `json:"skip"`
	Nodes map[string]int64 `json:"nodes"`
	Error string           `json:"error,omitempty"`
}

// evaluation is one line of the output. Every filter is asked about every node;
// scores are given over all nodes, and over those that all filters let pass.
type evaluation struct {
	Filters        map[string]map[string]verdict `json:"filters"`
	Scores         map[string]points             `json:"scores"`
	ScoresFeasible map[string]points             `json:"scoresFeasible"`
}

func (e *evaluator) evaluate(read *example) (*evaluation, error) {
	e.cluster.become(read)
	made := make([]fwk.Plugin, len(probes))
	for key := range read.Arguments {
		if !slices.ContainsFunc(probes, func(asked probe) bool { return asked.key == key }) {
			return nil, fmt.Errorf("arguments for %q, which isn't a plugin that is asked", key)
		}
	}
	for index, asked := range probes {
		arguments := asked.arguments
		if given, found := read.Arguments[asked.key]; found {
			arguments = string(given)
		}
		var err error
		if made[index], err = e.plugin(asked, arguments); err != nil {
			return nil, err
		}
	}

	nodes := make([]fwk.NodeInfo, len(read.Nodes))
	for index, node := range read.Nodes {
		info, err := e.cluster.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, err
		}
		nodes[index] = info
	}
	state := framework.NewCycleState()
	result := &evaluation{
		Filters:        make(map[string]map[string]verdict, len(nodes)),
		Scores:         map[string]points{},
		ScoresFeasible: map[string]points{},
	}
	feasible := e.filter(read.Pod, state, made, nodes, result.Filters)
	for index, asked := range probes {
		if !asked.scores {
			continue
		}
		scorer := made[index].(fwk.ScorePlugin)
		result.Scores[asked.key] = e.score(read.Pod, state, scorer, nodes)
		if len(feasible) > 0 {
			result.ScoresFeasible[asked.key] = e.score(read.Pod, state, scorer, feasible)
		}
	}
	return result, nil
}

// filter asks every filter about every node and gives the nodes that none
// refuses.
func (e *evaluator) filter(
	pod *corev1.Pod, state fwk.CycleState, made []fwk.Plugin, nodes []fwk.NodeInfo, verdicts map[string]map[string]verdict,
) (feasible []fwk.NodeInfo) {
	statuses := make([][]*fwk.Status, len(made))
	for index, asked := range probes {
		if asked.filters {
			statuses[index] = e.filterOne(pod, state, made[index].(fwk.FilterPlugin), nodes, nodes)
		}
	}
	for position, node := range nodes {
		passes := true
		said := make(map[string]verdict, len(probes))
		for index, asked := range probes {
			if !asked.filters {
				continue
			}
			status := statuses[index][position]
			said[asked.key] = verdict{status.Code().String(), reasons(status)}
			passes = passes && (status.IsSuccess() || status.IsSkip())
		}
		verdicts[node.Node().Name] = said
		if passes {
			feasible = append(feasible, node)
		}
	}
	return feasible
}

func reasons(status *fwk.Status) []string {
	if status.IsSuccess() {
		return nil
	}
	return status.Reasons()
}

// filterOne does for one plugin what the framework's RunPreFilterPlugins (over
// all nodes) and RunFilterPlugins (for those that are asked about) do for all.
func (e *evaluator) filterOne(
	pod *corev1.Pod, state fwk.CycleState, plugin fwk.FilterPlugin, all, nodes []fwk.NodeInfo,
) []*fwk.Status {
	statuses := make([]*fwk.Status, len(nodes))
	var eligible *fwk.PreFilterResult
	if first, has := plugin.(fwk.PreFilterPlugin); has {
		result, status := first.PreFilter(e.ctx, state, pod, all)
		if !status.IsSuccess() {
			for index := range statuses {
				statuses[index] = status
			}
			return statuses
		}
		eligible = result
	}
	for index, node := range nodes {
		if !eligible.AllNodes() && !eligible.NodeNames.Has(node.Node().Name) {
			// The text of schedule_one.go, findNodesThatFitPod.
			statuses[index] = fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
				fmt.Sprintf("node(s) didn't satisfy plugin(s) [%s]", plugin.Name()))
			continue
		}
		statuses[index] = plugin.Filter(e.ctx, state, pod, node)
	}
	return statuses
}

// score does for one plugin what the framework's RunPreScorePlugins and
// RunScorePlugins do for all, without the weights.
func (e *evaluator) score(pod *corev1.Pod, state fwk.CycleState, plugin fwk.ScorePlugin, nodes []fwk.NodeInfo) points {
	if first, has := plugin.(fwk.PreScorePlugin); has {
		status := first.PreScore(e.ctx, state, pod, nodes)
		if status.IsSkip() {
			return points{Skip: true}
		}
		if !status.IsSuccess() {
			return points{Error: status.Message()}
		}
	}
	scored := make(fwk.NodeScoreList, len(nodes))
	for index, node := range nodes {
		score, status := plugin.Score(e.ctx, state, pod, node)
		if !status.IsSuccess() {
			return points{Error: status.Message()}
		}
		scored[index] = fwk.NodeScore{Name: node.Node().Name, Score: score}
	}
	if extension := plugin.ScoreExtensions(); extension != nil {
		if status := extension.NormalizeScore(e.ctx, state, pod, scored); !status.IsSuccess() {
			return points{Error: status.Message()}
		}
	}
	given := points{Nodes: make(map[string]int64, len(scored))}
	for _, score := range scored {
		given.Nodes[score.Name] = score.Score
	}
	return given
}
