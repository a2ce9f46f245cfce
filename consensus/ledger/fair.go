package ledger

import ledgerv1 "github.com/berthd/berth/api/ledger/v1"

// Service is counted as in Sheng et al., Fairness in Serving Large Language Models (OSDI 2024): a token of the prompt that
// is computed weighs 1, one of an answer 2, and a tenant's counter rises by that over its weight.
const (
	inputCost  = 1
	outputCost = 2
	// costUnit is a unit of cost in a counter: fine enough for every weight, and 2^64 of it are more than a hundred years
	// at a million tokens a second.
	costUnit = 1 << 12
	// mostTokens bounds what a request is taken for.
	mostTokens = 1 << 40
	// firstMean is the length of answers that a new tenant is taken to get.
	firstMean = 128
	// manyAnswers is how many a mean is made of, at most: older ones count half each time.
	manyAnswers = 1 << 12
)

// tokenUnit is a token in a budget's level: tokens a minute are as many units a millisecond.
const tokenUnit = 60_000

// deepest is as far as a budget can be in debt.
const deepest = -1 << 62

// cost is a request's service over its tenant's weight.
func cost(weight uint32, input, output uint64) uint64 {
	c := inputCost*min(input, mostTokens) + outputCost*min(output, mostTokens)
	return (max(1, c)*costUnit + uint64(weight) - 1) / uint64(weight)
}

// estimate is what a reserve is charged: service by weight, and tokens of the budget.
func estimate(weight uint32, mean uint64, m *ledgerv1.Reserve) (charge, tokens uint64) {
	each := min(m.MaxTokens, mostTokens>>16) // by at most 2^16 branches
	if m.OpenEnded {
		each = min(each, mean)
	}
	prompt, output := min(m.PromptTokens, mostTokens), each*uint64(max(m.Branches, 1))
	return cost(weight, prompt-min(prompt, m.CachedTokens), output), prompt + output
}

func mean(answers, tokens uint64) uint64 {
	if answers == 0 {
		return firstMean
	}
	return (tokens + answers - 1) / answers
}

// payer is the tenant that a reserve is charged to: none while nobody ever put a tenant.
func (s *State) payer(m *ledgerv1.Reserve) (*tenant, *ledgerv1.Result) {
	if s.tenantsAt == 0 {
		return nil, nil
	}
	t := s.tenant(m.Tenant)
	if t == nil || t.in.name != m.ShareGroup {
		return nil, s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_NO_TENANT, "no such tenant, or not of that share group")
	}
	if t.put.TokensPerMinute > 0 && t.left(s.clockMs) <= 0 {
		return nil, s.refuse(ledgerv1.RefusalCode_REFUSAL_CODE_NO_TOKENS, "the tenant's tokens are used up")
	}
	return t, nil
}

// pay charges a reservation to its tenant. The tenant that had nothing waiting keeps no credit of its idle time.
func (s *State) pay(r *reservation, t *tenant, m *ledgerv1.Reserve) {
	if t == nil {
		return
	}
	r.payer, t.live = t, t.live+1
	r.charge, r.tokens = estimate(t.put.Weight, mean(t.answers, t.answerTokens), m)
	t.counter = max(t.counter, min(m.Lift, 1<<63)) + r.charge
	t.charged += r.charge
	t.use(s.clockMs, int64(r.tokens))
	t.touch()
}

// refund takes a charge back: the request never ran, or ran for nobody.
func (s *State) refund(r *reservation) { s.correct(r, 0, 0) }

// correct puts the truth in place of what a reservation was charged.
func (s *State) correct(r *reservation, charge, tokens uint64) {
	t := r.payer
	if t == nil {
		return
	}
	t.live--
	t.charged -= r.charge
	t.counter += charge - r.charge // modulo 2^64: the charge is in the counter (I10)
	t.use(s.clockMs, int64(tokens)-int64(r.tokens))
	t.touch()
	r.payer = nil
}

// settleCharge ends what a reservation is charged for with what it came to.
func (s *State) settleCharge(r *reservation, m *ledgerv1.End) {
	t := r.payer
	if t == nil {
		return
	}
	output := min(m.OutputTokens, mostTokens)
	if m.Reason == ledgerv1.FinishReason_FINISH_REASON_STOP || m.Reason == ledgerv1.FinishReason_FINISH_REASON_LENGTH {
		t.answers, t.answerTokens = t.answers+uint64(r.branches), t.answerTokens+output
		if t.answers >= manyAnswers {
			t.answers, t.answerTokens = t.answers/2, t.answerTokens/2
		}
	}
	s.correct(r, cost(t.put.Weight, m.ComputedTokens, output), min(r.promptTokens, mostTokens)+output)
}

// fullLevel is a budget that nothing was used of.
func fullLevel(put *ledgerv1.Tenant) int64 { return int64(put.Burst) * tokenUnit }

// left is the level of the token budget at a time of the ledger's clock.
func (t *tenant) left(now uint64) int64 {
	return levelAt(t.put.TokensPerMinute, fullLevel(t.put), t.level, now-t.levelAt)
}

// levelAt is a level after some time.
func levelAt(perMinute uint64, full, level int64, elapsed uint64) int64 {
	if perMinute == 0 || level >= full {
		return full
	}
	if elapsed > uint64(full-level)/perMinute {
		return full
	}
	return min(full, level+int64(perMinute*elapsed))
}

// use takes tokens out of the budget, or puts some back.
func (t *tenant) use(now uint64, tokens int64) {
	if t.put.TokensPerMinute == 0 {
		return
	}
	t.level, t.levelAt = min(fullLevel(t.put), max(deepest, t.left(now)-tokens*tokenUnit)), now
}
