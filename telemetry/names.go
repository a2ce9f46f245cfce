package telemetry

// Spans.
const (
	SpanTokenize = "router.tokenize"
	SpanQueue    = "router.queue"
	SpanPlace    = "router.place"
	SpanReserve  = "ledger.reserve"
	SpanGenerate = "worker.generate"
	SpanWaiting  = "engine.queue"
	SpanPrefill  = "engine.prefill"
	SpanDecode   = "engine.decode"
	SpanPreempt  = "kv.preempt"
)

// Attributes of spans and logs. Those that begin with gen_ai are of the OpenTelemetry GenAI semantic conventions.
const (
	KeyRequestID    = "request_id"
	KeyOperation    = "gen_ai.operation.name"
	KeyProvider     = "gen_ai.provider.name"
	KeyRequestModel = "gen_ai.request.model"
	KeyModel        = "gen_ai.response.model"
	KeyFinish       = "gen_ai.response.finish_reasons"
	KeyInputTokens  = "gen_ai.usage.input_tokens"
	KeyOutputTokens = "gen_ai.usage.output_tokens"
	KeyCacheRead    = "gen_ai.usage.cache_read.input_tokens"
	KeyTokenType    = "gen_ai.token.type"
	KeyTenant       = "berth.tenant"
	KeyWorker       = "berth.worker"
	KeyPages        = "berth.pages"
	KeyCachedTokens = "berth.cached_tokens"
	KeyRevision     = "berth.revision"
	KeySteps        = "berth.steps"
	KeyGuessed      = "berth.guessed_tokens"
	KeyGuessedRight = "berth.guessed_tokens.right"
	KeyChunks       = "berth.chunks"
	KeyErrorID      = "berth.error"
	KeyErrorType    = "error.type"
	KeyMethod       = "http.request.method"
	KeyPath         = "url.path"
	KeyRoute        = "http.route"
	KeyStatus       = "http.response.status_code"
	KeyResponseID   = "gen_ai.response.id"
	KeyMaxTokens    = "gen_ai.request.max_tokens"
	KeyTemperature  = "gen_ai.request.temperature"
	KeyTopP         = "gen_ai.request.top_p"
)

// Provider is the value of gen_ai.provider.name.
const Provider = "berth"

// Metrics, in Prometheus form; histograms are in seconds.
const (
	MetricRequests        = "berth_requests_total"
	MetricQueueDuration   = "berth_queue_duration_seconds"
	MetricPlaceDuration   = "berth_place_duration_seconds"
	MetricCommitDuration  = "berth_ledger_commit_duration_seconds"
	MetricInterToken      = "berth_inter_token_duration_seconds"
	MetricStepDuration    = "berth_step_duration_seconds"
	MetricStepTokens      = "berth_step_tokens"
	MetricRunning         = "berth_running_requests"
	MetricQueueRequests   = "berth_queue_requests"
	MetricQueueTokens     = "berth_queue_tokens"
	MetricPages           = "berth_kv_pages"
	MetricGranted         = "berth_kv_granted_pages"
	MetricCapacity        = "berth_kv_capacity_pages"
	MetricTenantPages     = "berth_tenant_pages"
	MetricPrefixTokens    = "berth_prefix_tokens_total"
	MetricPrefixExpected  = "berth_prefix_expected_tokens_total"
	MetricPreemptions     = "berth_preemptions_total"
	MetricRefusals        = "berth_refusals_total"
	MetricRevision        = "berth_ledger_revision"
	MetricLeader          = "berth_ledger_leader"
	MetricApplied         = "berth_ledger_applied_revision"
	MetricReady           = "berth_ready"
	MetricWorkers         = "berth_workers"
	MetricReplicas        = "berth_replicas"
	MetricTenantTokens    = "berth_tenant_tokens_total"
	MetricQueueLimit      = "berth_queue_requests_limit"
	MetricBuild           = "berth_build_info"
	MetricRequestDuration = "gen_ai.server.request.duration"
	MetricFirstToken      = "gen_ai.server.time_to_first_token"
	MetricPerToken        = "gen_ai.server.time_per_output_token"
	MetricTokenUsage      = "gen_ai.client.token.usage"
)

// Buckets of the GenAI conventions, and Berth's own for what is faster.
var (
	DurationBuckets = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	FirstBuckets    = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	PerTokenBuckets = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}
	TokenBuckets    = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	FastBuckets     = []float64{0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}
)
