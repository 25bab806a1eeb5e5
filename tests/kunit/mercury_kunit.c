// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit cases of sch_mercury: one rule each, with packets, classids, clocks
 * and memory under control. The fixture says what is checked after every step.
 *
 * The module sch_mercury_kunit.ko is sch_mercury and these cases in one (this
 * file includes the source of the former), so load it instead of sch_mercury:
 * it registers the qdisc as that does, and KUnit then runs the suites, because
 * they stand in the ELF section that kunit_test_suites fills. tests/kunit/kunit
 * copies kmod/ and this folder into build/kunit-RELEASE, builds there with
 * MERCURY_KUNIT=y, which kmod/Kbuild knows, and loads the result in the test
 * bed.
 */
#include "mercury_fixture.h"

#define MARK(_job, _layer) ((u32)(_job) << 16 | (_layer))
#define CLASSID(_minor) (KT_HANDLE | (_minor))
#define MSEC ((u64)NSEC_PER_MSEC)

/* --- Classification --------------------------------------------------------- */

static void layer_one_is_band_zero(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1)), NET_XMIT_SUCCESS);
	kt_expect_at(test, 0, 0);
	kt_put(.mark = MARK(0, 64));
	kt_expect_at(test, 0, 63);
}

static void layer_zero_is_the_default_class(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = 0), NET_XMIT_SUCCESS);
	kt_expect_unmarked(test);
	/* A job alone is no layer. */
	kt_put(.mark = MARK(3, 0));
	kt_expect_unmarked(test);
	KUNIT_EXPECT_EQ(test, kt_q()->child->q.qlen, 2);
}

static void layers_beyond_the_bands_share_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_put(.mark = MARK(0, 4));
	kt_expect_at(test, 0, 3);
	kt_put(.mark = MARK(0, 5));
	kt_expect_at(test, 0, 3);
	kt_put(.mark = MARK(0, 0xffff));
	kt_expect_at(test, 0, 3);
}

static void jobs_beyond_the_number_share_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 2));
	kt_put(.mark = MARK(1, 1));
	kt_expect_at(test, 1, 0);
	kt_put(.mark = MARK(2, 2));
	kt_expect_at(test, 1, 1);
	kt_put(.mark = MARK(255, 3));
	kt_expect_at(test, 1, 2);
}

static void bits_outside_the_masks_mean_nothing(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = 0xff000000 | MARK(2, 7));
	kt_expect_at(test, 2, 6);
	kt_put(.mark = 0xff000000);
	kt_expect_unmarked(test);
}

static void masks_may_be_anywhere(struct kunit *test)
{
	kt_create(test, KT_SET(MASK, 0xff000000), KT_SET(JOB_MASK, 0x0000000f));
	kt_put(.mark = 0x05000003);
	kt_expect_at(test, 3, 4);
	kt_put(.mark = 0x00ffff03);
	kt_expect_unmarked(test);
}

static void a_job_mask_of_no_bits_leaves_one_job(struct kunit *test)
{
	kt_create(test, KT_SET(MASK, 0xffff0000), KT_SET(JOB_MASK, 0));
	kt_put(.mark = 0xffffffff);
	kt_expect_at(test, 0, 63);
	kt_put(.mark = 0x00020003);
	kt_expect_at(test, 0, 1);
	kt_put(.mark = 0x0000ffff);
	kt_expect_unmarked(test);
}

static void the_key_can_be_the_priority(struct kunit *test)
{
	kt_create(test, KT_SET(KEY, MERCURY_KEY_PRIORITY));
	kt_put(.priority = 6, .mark = MARK(1, 1));
	kt_expect_at(test, 0, 5);
	kt_put(.mark = MARK(1, 1));
	kt_expect_unmarked(test);
}

static void the_key_can_be_the_dscp_of_ipv4(struct kunit *test)
{
	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP));
	kt_put(.dscp = 46, .mark = MARK(1, 1));
	kt_expect_at(test, 0, 45);
	/* The ECN bits are not part of it. */
	kt_put(.dscp = 1, .ecn = INET_ECN_CE);
	kt_expect_at(test, 0, 0);
	kt_put(.ecn = INET_ECN_ECT_0);
	kt_expect_unmarked(test);
}

static void the_key_can_be_the_dscp_of_ipv6(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP));
	skb = kt_alloc(KT_LEN);
	skb->protocol = htons(ETH_P_IPV6);
	ip6_flow_hdr((struct ipv6hdr *)skb_network_header(skb), 46 << 2 | INET_ECN_ECT_0, 0);
	kt_enqueue(skb);
	kt_expect_at(test, 0, 45);
}

static void a_mask_picks_bits_of_the_dscp(struct kunit *test)
{
	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP), KT_SET(MASK, 0x38),
		  KT_SET(JOB_MASK, 0x07));
	kt_put(.dscp = 5 << 3 | 2);
	kt_expect_at(test, 2, 4);
}

static void a_vlan_tag_does_not_hide_the_dscp(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP));
	/* The tag beside the packet, for the device to put in. */
	skb = kt_make((struct kt_packet){ .dscp = 9 });
	__vlan_hwaccel_put_tag(skb, htons(ETH_P_8021Q), 5);
	kt_enqueue(skb);
	kt_expect_at(test, 0, 8);

	/* The tag in the packet, as a VLAN device on top of ours leaves it. */
	skb = kt_alloc(KT_LEN);
	put_unaligned_be16(ETH_P_IP, skb->data + ETH_HLEN + 2);
	skb->protocol = htons(ETH_P_8021Q);
	skb_set_network_header(skb, VLAN_ETH_HLEN);
	ip_hdr(skb)->version = 4;
	ip_hdr(skb)->ihl = 5;
	ip_hdr(skb)->tos = 10 << 2;
	kt_enqueue(skb);
	kt_expect_at(test, 0, 9);
}

static void no_whole_ip_header_is_no_dscp(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP));
	skb = kt_alloc(ETH_HLEN + sizeof(struct iphdr) - 1);
	skb->data[ETH_HLEN + 1] = 46 << 2;
	skb->protocol = htons(ETH_P_IP);
	kt_enqueue(skb);
	kt_expect_unmarked(test);

	skb = kt_alloc(KT_LEN);
	skb->data[ETH_HLEN + 1] = 46 << 2;
	skb->protocol = htons(ETH_P_ARP);
	kt_enqueue(skb);
	kt_expect_unmarked(test);
}

static void the_dscp_is_found_beyond_the_linear_part(struct kunit *test)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	struct sk_buff *skb;

	KUNIT_ASSERT_NOT_NULL(test, page);
	kt_create(test, KT_SET(KEY, MERCURY_KEY_DSCP));
	skb = kt_alloc(ETH_HLEN);
	((u8 *)page_address(page))[0] = 0x45;
	((u8 *)page_address(page))[1] = 46 << 2;
	skb_add_rx_frag(skb, 0, page, 0, 500, PAGE_SIZE);
	skb->protocol = htons(ETH_P_IP);
	kt_enqueue(skb);
	kt_expect_at(test, 0, 45);
}

static void a_classid_in_the_priority_is_the_band(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.priority = CLASSID(MERCURY_MINOR_BAND(5, 7)), .mark = MARK(1, 1));
	kt_expect_at(test, 5, 7);
	kt_put(.priority = CLASSID(MERCURY_MINOR_BAND(0, 0)));
	kt_expect_at(test, 0, 0);
	kt_put(.priority = CLASSID(MERCURY_MINOR_BAND(61, 1023)));
	kt_expect_at(test, 15, 63);
}

static void a_classid_of_a_job_leaves_the_layer_to_the_key(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.priority = CLASSID(MERCURY_MINOR_JOB(3)), .mark = MARK(1, 2));
	kt_expect_at(test, 3, 1);
	/* Without a layer it is the least urgent. */
	kt_put(.priority = CLASSID(MERCURY_MINOR_JOB(3)));
	kt_expect_at(test, 3, 63);
	kt_put(.priority = CLASSID(MERCURY_MINOR_JOB(61)), .mark = MARK(0, 1));
	kt_expect_at(test, 15, 0);
}

static void the_default_classid_overrides_the_mark(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.priority = CLASSID(MERCURY_MINOR_DEFAULT), .mark = MARK(1, 1));
	kt_expect_unmarked(test);
}

static void a_classid_of_nothing_leaves_it_to_the_key(struct kunit *test)
{
	static const u16 gaps[] = { 0, 0xf801, 0xfbff, 0xfc3e, 0xfffe };
	u32 i;

	kt_create_default(test);
	for (i = 0; i < ARRAY_SIZE(gaps); i++) {
		kt_put(.priority = CLASSID(gaps[i]), .mark = MARK(1, 2));
		kt_expect_at(test, 1, 1);
	}
}

static void a_classid_of_another_qdisc_means_nothing(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.priority = TC_H_MAKE(0x90000, 1), .mark = MARK(1, 2));
	kt_expect_at(test, 1, 1);
	kt_put(.priority = 1);
	kt_expect_unmarked(test);
}

static void without_a_handle_priorities_are_no_classids(struct kunit *test)
{
	kt_make_root(0);
	kt_create_default(test);
	kt_put(.priority = 1);
	kt_expect_unmarked(test);
	kt_put(.priority = 6, .mark = MARK(0, 3));
	kt_expect_at(test, 0, 2);
}

/* A filter that gives the verdict that the test wants. */
static struct {
	struct tcf_proto proto;
	struct tcf_chain chain;
	int verdict;
	u32 classid;
} kt_filter;

static int kt_filter_classify(struct sk_buff *skb, const struct tcf_proto *tp,
			      struct tcf_result *res)
{
	res->classid = kt_filter.classid;
	return kt_filter.verdict;
}

static void kt_set_filter(int verdict, u32 classid)
{
	kt_filter.proto = (struct tcf_proto){
		.classify = kt_filter_classify,
		.protocol = htons(ETH_P_ALL),
		.chain = &kt_filter.chain,
	};
	kt_filter.verdict = verdict;
	kt_filter.classid = classid;
	rcu_assign_pointer(kt_q()->filter_list, &kt_filter.proto);
}

static int kt_put_filtered(int verdict, u32 classid, u32 mark)
{
	kt_set_filter(verdict, classid);
	return kt_put(.mark = mark);
}

static void a_filter_selects_the_class(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_put_filtered(TC_ACT_OK, CLASSID(MERCURY_MINOR_BAND(2, 3)), 1),
			NET_XMIT_SUCCESS);
	kt_expect_at(test, 2, 3);
	kt_put_filtered(TC_ACT_OK, CLASSID(MERCURY_MINOR_JOB(4)), MARK(1, 5));
	kt_expect_at(test, 4, 4);
	kt_put_filtered(TC_ACT_PIPE, CLASSID(MERCURY_MINOR_DEFAULT), MARK(1, 5));
	kt_expect_unmarked(test);
}

static void a_filter_without_a_class_leaves_it_to_the_key(struct kunit *test)
{
	kt_create_default(test);
	kt_put_filtered(TC_ACT_OK, 0, MARK(1, 5));
	kt_expect_at(test, 1, 4);
	kt_put_filtered(TC_ACT_UNSPEC, CLASSID(1), MARK(1, 6));
	kt_expect_at(test, 1, 5);
}

static void a_classid_in_the_priority_beats_a_filter(struct kunit *test)
{
	kt_create_default(test);
	kt_put_filtered(TC_ACT_OK, CLASSID(MERCURY_MINOR_BAND(2, 3)), 1);
	kt_put(.priority = CLASSID(9));
	kt_expect_at(test, 0, 8);
}

static void a_filter_that_shoots_drops(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_put_filtered(TC_ACT_SHOT, 0, 1),
			NET_XMIT_SUCCESS | __NET_XMIT_BYPASS);
	KUNIT_EXPECT_EQ(test, kt.drops, 1);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], kt.id);
	KUNIT_EXPECT_EQ(test, kt_q()->drop_filter, 1);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 1);
}

static void a_redirection_cannot_be_and_drops(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_put_filtered(TC_ACT_REDIRECT, 0, 1),
			NET_XMIT_SUCCESS | __NET_XMIT_BYPASS);
	KUNIT_EXPECT_EQ(test, kt_q()->drop_filter, 1);
}

static void a_filter_that_takes_the_packet_is_no_drop(struct kunit *test)
{
	static const int verdicts[] = { TC_ACT_STOLEN, TC_ACT_QUEUED, TC_ACT_TRAP };
	u32 i;

	kt_create_default(test);
	for (i = 0; i < ARRAY_SIZE(verdicts); i++) {
		KUNIT_EXPECT_EQ(test, kt_put_filtered(verdicts[i], 0, 1),
				NET_XMIT_SUCCESS | __NET_XMIT_STOLEN);
		KUNIT_EXPECT_EQ(test, kt.dropped[0], kt.id);
	}
	KUNIT_EXPECT_EQ(test, kt_q()->drop_filter, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 0);
}

/* Such as act_ct's, which keeps a fragment until it has them all. */
static void a_packet_that_an_action_has_consumed_is_not_ours(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create_default(test);
	kt_set_filter(TC_ACT_CONSUMED, CLASSID(MERCURY_MINOR_BAND(0, 0)));
	skb = kt_make((struct kt_packet){ .mark = 1 });
	KUNIT_EXPECT_EQ(test, kt_enqueue(skb), NET_XMIT_SUCCESS | __NET_XMIT_STOLEN);
	KUNIT_EXPECT_EQ(test, kt.drops, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 0);
	kfree_skb(skb);
}

/* A socket; of UDP it has set SO_TXTIME in deadline mode, to this clock. */
static void kt_open_socket(struct kunit *test, int type, int protocol, clockid_t clock)
{
	KUNIT_ASSERT_EQ(test, sock_create_kern(&init_net, AF_INET, type, protocol, &kt.sock), 0);
	sock_set_flag(kt.sock->sk, SOCK_TXTIME);
	kt.sock->sk->sk_clockid = clock;
	kt.sock->sk->sk_txtime_deadline_mode = 1;
}

static void kt_open_tcp(struct kunit *test)
{
	kt_open_socket(test, SOCK_STREAM, IPPROTO_TCP, CLOCK_MONOTONIC);
}

static void pure_acks_go_first_in_their_job(struct kunit *test)
{
	kt_create_default(test);
	kt_open_tcp(test);
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 0);
	KUNIT_EXPECT_EQ(test, kt_job(3)->acks, 1);
	kt_put(.mark = MARK(255, 40), .ack = true);
	kt_expect_at(test, 15, 0);
	KUNIT_EXPECT_EQ(test, kt_job(15)->acks, 1);
	kt_put(.mark = MARK(3, 40));
	kt_expect_at(test, 3, 39);
}

static void pure_acks_go_first_whoever_selects_their_class(struct kunit *test)
{
	kt_create_default(test);
	kt_open_tcp(test);
	kt_put(.priority = CLASSID(MERCURY_MINOR_BAND(5, 7)), .ack = true);
	kt_expect_at(test, 5, 0);
	KUNIT_EXPECT_EQ(test, kt_job(5)->acks, 1);
}

/* Whoever gets it first would take what waits for too old (RFC 5961, 5.2). */
static void a_pure_ack_does_not_overtake_its_own_connection(struct kunit *test)
{
	refcount_t *charged;

	kt_create_default(test);
	kt_open_tcp(test);
	charged = &kt.sock->sk->sk_wmem_alloc;
	refcount_add(SKB_TRUESIZE(1), charged);
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 39);
	KUNIT_EXPECT_EQ(test, kt_job(3)->acks, 0);
	/* Another pure ACK is charged with 2 bytes, and is no data. */
	KUNIT_EXPECT_FALSE(test, refcount_sub_and_test(SKB_TRUESIZE(1) - 2, charged));
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 0);
	KUNIT_EXPECT_FALSE(test, refcount_sub_and_test(2, charged));
}

static void a_pure_ack_of_no_socket_stays_in_its_band(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 39);
	kt_open_tcp(test);
	kt.sock->sk->sk_state = TCP_NEW_SYN_RECV;
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 39);
	kt.sock->sk->sk_state = TCP_CLOSE;
}

static void pure_acks_that_are_first_anyway_are_not_counted(struct kunit *test)
{
	kt_create_default(test);
	kt_open_tcp(test);
	kt_put(.mark = MARK(3, 1), .ack = true);
	kt_expect_at(test, 3, 0);
	KUNIT_EXPECT_EQ(test, kt_job(3)->acks, 0);
}

static void unmarked_acks_stay_unmarked(struct kunit *test)
{
	kt_create_default(test);
	kt_open_tcp(test);
	kt_put(.mark = 0, .ack = true);
	kt_expect_unmarked(test);
}

static void no_ack_first_leaves_acks_in_their_band(struct kunit *test)
{
	kt_create(test, KT_SET(ACK_FIRST, 0));
	kt_open_tcp(test);
	kt_put(.mark = MARK(3, 40), .ack = true);
	kt_expect_at(test, 3, 39);
	KUNIT_EXPECT_EQ(test, kt_job(3)->acks, 0);
}

static struct kunit_case mercury_classify_cases[] = {
	KUNIT_CASE(layer_one_is_band_zero),
	KUNIT_CASE(layer_zero_is_the_default_class),
	KUNIT_CASE(layers_beyond_the_bands_share_the_last),
	KUNIT_CASE(jobs_beyond_the_number_share_the_last),
	KUNIT_CASE(bits_outside_the_masks_mean_nothing),
	KUNIT_CASE(masks_may_be_anywhere),
	KUNIT_CASE(a_job_mask_of_no_bits_leaves_one_job),
	KUNIT_CASE(the_key_can_be_the_priority),
	KUNIT_CASE(the_key_can_be_the_dscp_of_ipv4),
	KUNIT_CASE(the_key_can_be_the_dscp_of_ipv6),
	KUNIT_CASE(a_mask_picks_bits_of_the_dscp),
	KUNIT_CASE(a_vlan_tag_does_not_hide_the_dscp),
	KUNIT_CASE(no_whole_ip_header_is_no_dscp),
	KUNIT_CASE(the_dscp_is_found_beyond_the_linear_part),
	KUNIT_CASE(a_classid_in_the_priority_is_the_band),
	KUNIT_CASE(a_classid_of_a_job_leaves_the_layer_to_the_key),
	KUNIT_CASE(the_default_classid_overrides_the_mark),
	KUNIT_CASE(a_classid_of_nothing_leaves_it_to_the_key),
	KUNIT_CASE(a_classid_of_another_qdisc_means_nothing),
	KUNIT_CASE(without_a_handle_priorities_are_no_classids),
	KUNIT_CASE(a_filter_selects_the_class),
	KUNIT_CASE(a_filter_without_a_class_leaves_it_to_the_key),
	KUNIT_CASE(a_classid_in_the_priority_beats_a_filter),
	KUNIT_CASE(a_filter_that_shoots_drops),
	KUNIT_CASE(a_redirection_cannot_be_and_drops),
	KUNIT_CASE(a_filter_that_takes_the_packet_is_no_drop),
	KUNIT_CASE(a_packet_that_an_action_has_consumed_is_not_ours),
	KUNIT_CASE(pure_acks_go_first_in_their_job),
	KUNIT_CASE(pure_acks_go_first_whoever_selects_their_class),
	KUNIT_CASE(a_pure_ack_does_not_overtake_its_own_connection),
	KUNIT_CASE(a_pure_ack_of_no_socket_stays_in_its_band),
	KUNIT_CASE(pure_acks_that_are_first_anyway_are_not_counted),
	KUNIT_CASE(unmarked_acks_stay_unmarked),
	KUNIT_CASE(no_ack_first_leaves_acks_in_their_band),
	{}
};

KT_SUITE(classify);

/* --- Order -------------------------------------------------------------------- */

static void the_lowest_band_goes_first(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 40));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 64));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 4, 2, 1, 3, 0);
}

static void a_band_is_first_in_first_out(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 5));
	kt_put(.mark = MARK(0, 5), .len = 60);
	kt_put(.mark = MARK(0, 5), .len = 9000);
	kt_expect_sent(test, 1, 2, 3, 0);
}

static void an_urgent_packet_overtakes_a_backlog(struct kunit *test)
{
	u32 i;

	kt_create_default(test);
	for (i = 0; i < 100; i++)
		kt_put(.mark = MARK(0, 41));
	kt_expect_sent(test, 1, 2);
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 101, 3);
}

static void order_holds_across_words_of_the_bitmap(struct kunit *test)
{
	static const u16 layers[] = { 1024, 1, 64, 65, 128, 129, 63, 960, 961, 66, 1023 };
	u32 i;

	kt_create(test, KT_SET(JOBS, 1), KT_SET(BANDS, 1024));
	for (i = 0; i < ARRAY_SIZE(layers); i++)
		kt_put(.mark = layers[i]);
	kt_expect_sent(test, 2, 7, 3, 4, 10, 5, 6, 8, 9, 11, 1, 0);
}

static void two_bands_are_enough(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 1), KT_SET(BANDS, 2));
	kt_put(.mark = 2);
	kt_put(.mark = 77);
	kt_put(.mark = 1);
	kt_expect_sent(test, 3, 1, 2, 0);
}

/* 577 is prime to 1024: every band once, in no order. */
static void a_thousand_bands_are_all_in_order(struct kunit *test)
{
	u32 i, b;

	kt_create(test, KT_SET(JOBS, 1), KT_SET(BANDS, 1024));
	kt.unchecked = true;
	for (i = 0; i < 1024; i++) {
		b = i * 577 % 1024;
		kt_put(.mark = b + 1, .flow = b);
	}
	kt_check();
	for (i = 0; i < 1024; i++) {
		KUNIT_ASSERT_NE(test, kt_get(), 0);
		KUNIT_ASSERT_EQ(test, kt.flow, i);
	}
}

/* Give a flow so many packets to send that it does not run out. */
static void kt_saturate(u16 flow, u32 mark, u32 packets, u32 len)
{
	kt.unchecked = true;
	while (packets--)
		kt_put(.mark = mark, .len = len, .flow = flow);
	kt.unchecked = false;
	kt_check();
}

#define KT_FLOWS 64

/* Send so many packets and sum up the bytes of each flow. */
static void kt_send_and_sum(struct kunit *test, u32 packets, u64 *bytes)
{
	memset(bytes, 0, KT_FLOWS * sizeof(*bytes));
	kt.unchecked = true;
	while (packets--) {
		KUNIT_ASSERT_NE(test, kt_get(), 0);
		bytes[kt.flow] += kt.len;
	}
	kt.unchecked = false;
	kt_check();
}

static void kt_expect_near(struct kunit *test, u64 got, u64 wanted, u64 tolerance)
{
	KUNIT_EXPECT_GE(test, got + tolerance, wanted);
	KUNIT_EXPECT_LE(test, got, wanted + tolerance);
}

static void jobs_share_by_weight_and_the_rest_gets_a_tenth(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_change_class(MERCURY_MINOR_JOB(2), TCA_MERCURY_CLASS_WEIGHT, 2);
	kt_saturate(0, 0, 700, KT_LEN);
	kt_saturate(1, MARK(1, 9), 700, KT_LEN);
	kt_saturate(2, MARK(2, 1), 700, KT_LEN);
	kt_send_and_sum(test, 1000, bytes);
	kt_expect_near(test, bytes[0], 100 * KT_LEN, 2 * KT_LEN);
	kt_expect_near(test, bytes[1], 300 * KT_LEN, 2 * KT_LEN);
	kt_expect_near(test, bytes[2], 600 * KT_LEN, 2 * KT_LEN);
}

static void shares_are_of_bytes_and_not_of_packets(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 200, 60000);
	kt_saturate(2, MARK(2, 1), 10000, 1200);
	kt_send_and_sum(test, 5100, bytes);
	kt_expect_near(test, bytes[1], 100 * 60000, 60000 + 1200);
	kt_expect_near(test, bytes[2], 100 * 60000, 60000 + 1200);
}

static void the_layer_does_not_change_the_share(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 600, KT_LEN);
	kt_saturate(2, MARK(2, 64), 600, KT_LEN);
	kt_send_and_sum(test, 1000, bytes);
	kt_expect_near(test, bytes[2], 500 * KT_LEN, 2 * KT_LEN);
}

static void the_default_share_does_not_depend_on_the_jobs(struct kunit *test)
{
	u64 bytes[KT_FLOWS];
	u32 j;

	kt_create_default(test);
	kt_saturate(0, 0, 400, KT_LEN);
	for (j = 0; j < 8; j++)
		kt_saturate(1 + j, MARK(j, 1), 400, KT_LEN);
	kt_send_and_sum(test, 2000, bytes);
	kt_expect_near(test, bytes[0], 200 * KT_LEN, 2 * KT_LEN);
	for (j = 0; j < 8; j++)
		kt_expect_near(test, bytes[1 + j], 225 * KT_LEN, 3 * KT_LEN);
}

static const u8 kt_shares[] = { 1, 50, 99 };

static void kt_share_name(const u8 *share, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "%u per cent", *share);
}

KUNIT_ARRAY_PARAM(kt_shares, kt_shares, kt_share_name);

static void the_default_share_can_be_set(struct kunit *test)
{
	u8 share = *(const u8 *)test->param_value;
	u64 bytes[KT_FLOWS];

	kt_create(test, KT_SET(DEFAULT_SHARE, share));
	kt_saturate(0, 0, 995, KT_LEN);
	kt_saturate(1, MARK(1, 1), 995, KT_LEN);
	kt_send_and_sum(test, 1000, bytes);
	kt_expect_near(test, bytes[0], share * 10 * KT_LEN, 2 * KT_LEN);
}

static void what_one_does_not_use_goes_to_the_others(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = 0);
	kt_put(.mark = 0);
	kt_expect_sent(test, 1, 2);
	kt_put(.mark = MARK(7, 1));
	kt_put(.mark = MARK(7, 1));
	kt_expect_sent(test, 3, 4, 0);
}

static void an_idle_job_saves_nothing_up(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 1500, KT_LEN);
	kt_send_and_sum(test, 1000, bytes);
	kt_saturate(2, MARK(2, 1), 200, KT_LEN);
	kt_send_and_sum(test, 200, bytes);
	kt_expect_near(test, bytes[2], 100 * KT_LEN, 2 * KT_LEN);
}

static void a_job_that_comes_back_is_not_made_to_pay(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(2, MARK(2, 1), 1000, KT_LEN);
	kt_send_and_sum(test, 1000, bytes);
	kt_saturate(1, MARK(1, 1), 1000, KT_LEN);
	kt_send_and_sum(test, 500, bytes);
	kt_saturate(2, MARK(2, 1), 200, KT_LEN);
	kt_send_and_sum(test, 200, bytes);
	kt_expect_near(test, bytes[2], 100 * KT_LEN, 2 * KT_LEN);
}

static void an_overdrawn_packet_is_paid_back(struct kunit *test)
{
	u32 i;

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 1, 60000);
	kt_saturate(2, MARK(2, 1), 100, KT_LEN);
	KUNIT_EXPECT_EQ(test, kt_get(), 1);
	kt_put(.mark = MARK(1, 1), .flow = 1);
	for (i = 0; i < 60; i++) {
		kt_get();
		KUNIT_EXPECT_EQ(test, kt.flow, 2);
	}
	kt_get();
	KUNIT_EXPECT_EQ(test, kt.flow, 1);
}

static void one_who_sends_little_waits_for_one_packet(struct kunit *test)
{
	u64 bytes[KT_FLOWS];
	u32 j;

	kt_create(test, KT_SET(JOBS, 62));
	for (j = 1; j < 62; j++)
		kt_saturate(j, MARK(j, 1), 5, 9000);
	kt_send_and_sum(test, 100, bytes);
	kt_put(.mark = MARK(0, 1), .flow = 63);
	kt_get();
	if (kt.flow != 63)
		kt_get();
	KUNIT_EXPECT_EQ(test, kt.flow, 63);
}

static void a_new_weight_counts_at_once(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 1500, KT_LEN);
	kt_saturate(2, MARK(2, 1), 1500, KT_LEN);
	kt_send_and_sum(test, 100, bytes);
	kt_expect_near(test, bytes[2], 50 * KT_LEN, KT_LEN);
	kt_change_class(MERCURY_MINOR_JOB(2), TCA_MERCURY_CLASS_WEIGHT, 9);
	kt_send_and_sum(test, 1000, bytes);
	kt_expect_near(test, bytes[2], 900 * KT_LEN, 3 * KT_LEN);
}

static void weights_from_1_to_1000_hold(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_change_class(MERCURY_MINOR_JOB(2), TCA_MERCURY_CLASS_WEIGHT, MERCURY_WEIGHT_MAX);
	kt_saturate(1, MARK(1, 1), 20, KT_LEN);
	kt_saturate(2, MARK(2, 1), 10020, KT_LEN);
	kt_send_and_sum(test, 10010, bytes);
	kt_expect_near(test, bytes[1], 10 * KT_LEN, 2 * KT_LEN);
}

static struct kunit_case mercury_order_cases[] = {
	KUNIT_CASE(the_lowest_band_goes_first),
	KUNIT_CASE(a_band_is_first_in_first_out),
	KUNIT_CASE(an_urgent_packet_overtakes_a_backlog),
	KUNIT_CASE(order_holds_across_words_of_the_bitmap),
	KUNIT_CASE(two_bands_are_enough),
	KUNIT_CASE(a_thousand_bands_are_all_in_order),
	KUNIT_CASE(jobs_share_by_weight_and_the_rest_gets_a_tenth),
	KUNIT_CASE(shares_are_of_bytes_and_not_of_packets),
	KUNIT_CASE(the_layer_does_not_change_the_share),
	KUNIT_CASE(the_default_share_does_not_depend_on_the_jobs),
	KUNIT_CASE_PARAM(the_default_share_can_be_set, kt_shares_gen_params),
	KUNIT_CASE(what_one_does_not_use_goes_to_the_others),
	KUNIT_CASE(an_idle_job_saves_nothing_up),
	KUNIT_CASE(a_job_that_comes_back_is_not_made_to_pay),
	KUNIT_CASE(an_overdrawn_packet_is_paid_back),
	KUNIT_CASE(one_who_sends_little_waits_for_one_packet),
	KUNIT_CASE(a_new_weight_counts_at_once),
	KUNIT_CASE(weights_from_1_to_1000_hold),
	{}
};

KT_SUITE(order);

/* --- Deadlines ------------------------------------------------------------------ */

static void an_overdue_band_is_rescued(struct kunit *test)
{
	struct mercury_counters *count;

	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4), .len = 500);
	kt_put(.mark = MARK(0, 1));
	kt_now += 3 * MSEC;
	kt_expect_sent(test, 1, 2);
	count = &kt_band(0, 3)->count;
	KUNIT_EXPECT_EQ(test, count->rescued, 1);
	KUNIT_EXPECT_EQ(test, count->rescued_bytes, 500);
	KUNIT_EXPECT_EQ(test, count->missed, 1);
	KUNIT_EXPECT_EQ(test, count->lateness, 2 * MSEC);
	KUNIT_EXPECT_EQ(test, kt_band(0, 0)->count.met, 1);
}

static void a_band_in_time_waits_its_turn(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_now += 1 * MSEC - 1;
	kt_expect_sent(test, 2, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued, 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.met, 1);
}

static void at_its_deadline_a_packet_is_rescued_and_has_met_it(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_now += 1 * MSEC;
	kt_expect_sent(test, 1, 2);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.met, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.missed, 0);
}

static void the_first_band_needs_no_rescue(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 4));
	kt_now += 200 * MSEC;
	kt_expect_sent(test, 1, 2, 3);
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->count.rescued, 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued, 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->count.missed, 2);
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->count.lateness, 200 * MSEC);
}

static void every_band_has_a_deadline_of_100_ms(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(15, 64));
	kt_put(.mark = MARK(15, 1));
	kt_now += MERCURY_DEADLINE_DEFAULT;
	kt_expect_sent(test, 1, 2);
}

static void rescue_0_never_rescues(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 0), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_now += 1000 * MSEC;
	kt_expect_sent(test, 2, 3, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued, 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.missed, 1);
}

static void rescue_100_is_the_earliest_deadline_first(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 8), KT_SET(RESCUE, 100),
		  KT_DEADLINE(0, 7, 7, 1 * MSEC), KT_DEADLINE(0, 6, 6, 3 * MSEC),
		  KT_DEADLINE(0, 5, 5, 2 * MSEC), KT_DEADLINE(0, 0, 0, 4 * MSEC));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 6));
	kt_put(.mark = MARK(0, 7));
	kt_put(.mark = MARK(0, 8));
	kt_put(.mark = MARK(0, 8));
	kt_now += 5 * MSEC;
	kt_expect_sent(test, 4, 5, 2, 3, 1);
}

/* Of equal packets one in ten, once the first has overdrawn the budget. */
static void rescue_keeps_within_its_budget(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 10), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_saturate(3, MARK(0, 4), 100, KT_LEN);
	kt_saturate(0, MARK(0, 1), 200, KT_LEN);
	kt_now += 10 * MSEC;
	for (i = 0; i < 100; i++) {
		kt_get();
		KUNIT_EXPECT_EQ(test, kt.flow == 3, i % 10 == 0);
	}
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued, 10);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.rescued_bytes, 10 * KT_LEN);
}

/* What is saved up, 1 MiB, lasts for 1 MiB * 100 / 90 that is itself sent. */
static void the_budget_that_is_saved_up_is_bounded(struct kunit *test)
{
	u32 most = (1 << 20) / 9 * 10 + 60000, bytes = 0, i;

	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 10), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_saturate(0, MARK(0, 1), 1000, 60000);
	kt_saturate(3, MARK(0, 4), 50, 60000);
	for (i = 0; i < 900; i++)
		kt_get();
	kt_now += 10 * MSEC;
	while (kt_get() && kt.flow == 3)
		bytes += kt.len;
	KUNIT_EXPECT_GT(test, bytes, most - 2 * 60000);
	KUNIT_EXPECT_LE(test, bytes, most);
}

static void the_budget_is_of_the_job(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 10),
		  KT_DEADLINE(MERCURY_EVERY_JOB, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(1, 4));
	kt_put(.mark = MARK(1, 1));
	kt_now += 10 * MSEC;
	/* Each rescues one; job 0 cannot pay for its second. */
	kt_expect_sent(test, 1, 4, 3, 5, 2);
}

static void a_deadline_of_none_is_neither_met_nor_missed(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100),
		  KT_DEADLINE(MERCURY_EVERY_JOB, 0, 3, MERCURY_TIME_NONE));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_now += 3600 * NSEC_PER_SEC;
	kt_expect_sent(test, 2, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.met, 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.missed, 0);
	KUNIT_EXPECT_EQ(test, kt_job(0)->heap_len, 0);
}

static void lateness_is_summed_and_its_maximum_kept(struct kunit *test)
{
	struct mercury_counters *count;

	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 1, 1, 1 * MSEC));
	kt_put(.mark = MARK(0, 2));
	kt_now += 5 * MSEC;
	kt_put(.mark = MARK(0, 2));
	kt_now += 2 * MSEC;
	kt_expect_sent(test, 1, 2);
	count = &kt_band(0, 1)->count;
	KUNIT_EXPECT_EQ(test, count->missed, 2);
	KUNIT_EXPECT_EQ(test, count->lateness, 7 * MSEC);
	KUNIT_EXPECT_EQ(test, count->lateness_max, 6 * MSEC);
}

static void the_next_packet_of_a_band_has_its_own_time(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100), KT_DEADLINE(0, 3, 3, 2 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_now += 1 * MSEC;
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_now += 1 * MSEC;
	kt_expect_sent(test, 1, 3, 2);
}

static void a_deadline_set_by_class_dates_what_is_queued(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 3));
	kt_put(.mark = MARK(0, 1));
	kt_now += 10 * MSEC;
	/* Shorter: overdue now. Longer: not even later. None: never. */
	KUNIT_EXPECT_EQ(test, kt_change_class(MERCURY_MINOR_BAND(0, 3),
					      TCA_MERCURY_CLASS_DEADLINE, 1 * MSEC), 0);
	KUNIT_EXPECT_EQ(test, kt_get(), 1);
	KUNIT_EXPECT_EQ(test, kt_change_class(MERCURY_MINOR_BAND(0, 2),
					      TCA_MERCURY_CLASS_DEADLINE, 1000 * MSEC), 0);
	kt_put(.mark = MARK(0, 4));
	KUNIT_EXPECT_EQ(test, kt_change_class(MERCURY_MINOR_BAND(0, 3),
					      TCA_MERCURY_CLASS_DEADLINE, MERCURY_TIME_NONE), 0);
	kt_now += 500 * MSEC;
	kt_expect_sent(test, 3, 2, 4);
}

static void a_deadline_set_by_change_dates_what_is_queued(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_put(.mark = MARK(2, 4));
	kt_put(.mark = MARK(2, 1));
	kt_now += 10 * MSEC;
	KUNIT_EXPECT_EQ(test, kt_change(KT_DEADLINE(MERCURY_EVERY_JOB, 0, 3, 1000 * MSEC),
					KT_DEADLINE(2, 3, 3, 1 * MSEC)), 0);
	kt_expect_sent(test, 1, 2);
}

/* The heap: 1024 bands that are due in another order. */
static void a_thousand_deadlines_are_all_in_order(struct kunit *test)
{
	u32 i, b, rank;

	kt_create(test, KT_SET(JOBS, 1), KT_SET(BANDS, 1024), KT_SET(RESCUE, 100));
	kt.unchecked = true;
	for (i = 0; i < 1024; i++) {
		b = i * 577 % 1024;
		rank = b * 331 % 1024;
		kt_change_class(MERCURY_MINOR_BAND(0, b), TCA_MERCURY_CLASS_DEADLINE,
				(1 + rank) * NSEC_PER_USEC);
		kt_put(.mark = b + 1, .flow = rank);
	}
	kt_check();
	kt_now += 100 * MSEC;
	for (i = 0; i < 1024; i++) {
		KUNIT_ASSERT_NE(test, kt_get(), 0);
		KUNIT_ASSERT_EQ(test, kt.flow, i);
	}
}

static void a_band_emptied_from_its_tail_is_not_due(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100), KT_SET(LIMIT, 1),
		  KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1)); /* pushes it out */
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 1);
	kt_now += 10 * MSEC;
	kt_expect_sent(test, 2, 0);
	/* And is due anew, later, when it has a packet again. */
	kt_put(.mark = MARK(0, 4));
	kt_change(KT_SET(LIMIT, 10));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 4, 3);
}

struct kt_clock {
	const char *name;
	clockid_t clock;
	enum tk_offsets offset; /* TK_OFFS_MAX: the monotonic clock itself */
};

static const struct kt_clock kt_clocks[] = {
	{ "monotonic", CLOCK_MONOTONIC, TK_OFFS_MAX },
	{ "realtime", CLOCK_REALTIME, TK_OFFS_REAL },
	{ "boottime", CLOCK_BOOTTIME, TK_OFFS_BOOT },
	{ "tai", CLOCK_TAI, TK_OFFS_TAI },
};

static void kt_clock_name(const struct kt_clock *clock, char *name)
{
	strscpy(name, clock->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(kt_clocks, kt_clocks, kt_clock_name);

static void a_packet_can_bring_its_deadline(struct kunit *test)
{
	const struct kt_clock *clock = test->param_value;
	u64 due = KT_START + 7 * MSEC;

	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, clock->clock);
	kt_put(.mark = MARK(0, 4),
	       .txtime = clock->offset == TK_OFFS_MAX ? due :
							ktime_mono_to_any(due, clock->offset));
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->due, due);
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_now = due - 1;
	KUNIT_EXPECT_EQ(test, kt_get(), 2);
	kt_now = due;
	kt_expect_sent(test, 1, 3);
}

static void a_packet_brings_its_deadline_to_a_band_without(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100),
		  KT_DEADLINE(0, 3, 3, MERCURY_TIME_NONE));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC);
	kt_put(.mark = MARK(0, 4), .txtime = KT_START + 1 * MSEC);
	kt_put(.mark = MARK(0, 1));
	kt_now += 2 * MSEC;
	kt_expect_sent(test, 1, 2);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.missed, 1);
}

static void a_time_before_the_boot_is_overdue(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_REALTIME);
	kt_put(.mark = MARK(0, 4), .txtime = 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->due, 0);
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 2);
}

/* The band's own deadline, 100 ms, holds where the packet's time is none. */
static void kt_expect_no_txtime(struct kunit *test)
{
	kt_put(.mark = MARK(0, 4), .txtime = KT_START + 1 * MSEC);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->due, KT_START + MERCURY_DEADLINE_DEFAULT);
}

static void the_time_of_a_tcp_packet_is_no_deadline(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_open_tcp(test);
	kt_expect_no_txtime(test);
}

static void the_time_of_a_strict_socket_is_no_deadline(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC);
	kt.sock->sk->sk_txtime_deadline_mode = 0;
	kt_expect_no_txtime(test);
}

static void the_time_of_a_socket_without_txtime_is_no_deadline(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC);
	sock_reset_flag(kt.sock->sk, SOCK_TXTIME);
	kt_expect_no_txtime(test);
}

static void the_time_of_an_unknown_clock_is_no_deadline(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC_RAW);
	kt_expect_no_txtime(test);
}

static void the_time_of_no_socket_is_no_deadline(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_expect_no_txtime(test);
}

static void the_socket_of_a_connection_request_is_not_read(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC);
	kt.sock->sk->sk_state = TCP_NEW_SYN_RECV;
	kt_expect_no_txtime(test);
	kt.sock->sk->sk_state = TCP_CLOSE;
}

struct kt_wait {
	u64 ns;
	u8 bucket;
};

static void the_sojourn_histogram_has_powers_of_two(struct kunit *test)
{
	static const struct kt_wait waits[] = {
		{ 0, 0 }, { 1023, 0 }, { 1024, 1 }, { 2047, 1 }, { 2048, 2 },
		{ 1024ULL << 21, 22 }, { (1024ULL << 22) - 1, 22 }, { 1024ULL << 22, 23 },
		{ 3600 * NSEC_PER_SEC, 23 },
	};
	u64 wanted[MERCURY_SOJOURN_BUCKETS] = {};
	u32 i;

	kt_create_default(test);
	for (i = 0; i < ARRAY_SIZE(waits); i++) {
		kt_put(.mark = MARK(1, 2));
		kt_now += waits[i].ns;
		KUNIT_EXPECT_NE(test, kt_get(), 0);
		wanted[waits[i].bucket]++;
	}
	for (i = 0; i < MERCURY_SOJOURN_BUCKETS; i++)
		KUNIT_EXPECT_EQ_MSG(test, kt_band(1, 1)->count.sojourn[i], wanted[i],
				    "bucket %u", i);
}

static struct kunit_case mercury_deadline_cases[] = {
	KUNIT_CASE(an_overdue_band_is_rescued),
	KUNIT_CASE(a_band_in_time_waits_its_turn),
	KUNIT_CASE(at_its_deadline_a_packet_is_rescued_and_has_met_it),
	KUNIT_CASE(the_first_band_needs_no_rescue),
	KUNIT_CASE(every_band_has_a_deadline_of_100_ms),
	KUNIT_CASE(rescue_0_never_rescues),
	KUNIT_CASE(rescue_100_is_the_earliest_deadline_first),
	KUNIT_CASE(rescue_keeps_within_its_budget),
	KUNIT_CASE(the_budget_that_is_saved_up_is_bounded),
	KUNIT_CASE(the_budget_is_of_the_job),
	KUNIT_CASE(a_deadline_of_none_is_neither_met_nor_missed),
	KUNIT_CASE(lateness_is_summed_and_its_maximum_kept),
	KUNIT_CASE(the_next_packet_of_a_band_has_its_own_time),
	KUNIT_CASE(a_deadline_set_by_class_dates_what_is_queued),
	KUNIT_CASE(a_deadline_set_by_change_dates_what_is_queued),
	KUNIT_CASE(a_thousand_deadlines_are_all_in_order),
	KUNIT_CASE(a_band_emptied_from_its_tail_is_not_due),
	KUNIT_CASE_PARAM(a_packet_can_bring_its_deadline, kt_clocks_gen_params),
	KUNIT_CASE(a_packet_brings_its_deadline_to_a_band_without),
	KUNIT_CASE(a_time_before_the_boot_is_overdue),
	KUNIT_CASE(the_time_of_a_tcp_packet_is_no_deadline),
	KUNIT_CASE(the_time_of_a_strict_socket_is_no_deadline),
	KUNIT_CASE(the_time_of_a_socket_without_txtime_is_no_deadline),
	KUNIT_CASE(the_time_of_an_unknown_clock_is_no_deadline),
	KUNIT_CASE(the_time_of_no_socket_is_no_deadline),
	KUNIT_CASE(the_socket_of_a_connection_request_is_not_read),
	KUNIT_CASE(the_sojourn_histogram_has_powers_of_two),
	{}
};

KT_SUITE(deadline);

/* --- Too many packets ---------------------------------------------------------- */

static void a_full_queue_drops_a_newcomer_of_the_last_band(struct kunit *test)
{
	kt_create(test, KT_SET(LIMIT, 2));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 2));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 3)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.drops, 1);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 3);
	KUNIT_EXPECT_EQ(test, kt_band(0, 2)->count.drop_limit, 1);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 1);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 2);
	kt_expect_sent(test, 1, 2, 0);
}

static void of_equals_the_newcomer_is_dropped(struct kunit *test)
{
	kt_create(test, KT_SET(LIMIT, 2));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 2));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 2)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 3);
	kt_expect_sent(test, 1, 2, 0);
}

static void an_urgent_newcomer_pushes_out_the_tail_of_the_last_band(struct kunit *test)
{
	kt_create(test, KT_SET(LIMIT, 4));
	kt_put(.mark = MARK(0, 2));
	kt_put(.mark = MARK(0, 9), .len = 500);
	kt_put(.mark = MARK(0, 9), .len = 1500);
	kt_put(.mark = MARK(0, 5));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1), .len = 60), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.drops, 1);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 3);
	KUNIT_EXPECT_EQ(test, kt_band(0, 8)->count.drop_limit, 1);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 4);
	KUNIT_EXPECT_EQ(test, kt.parent->qstats.backlog, KT_LEN + 500 + KT_LEN + 60);
	kt_expect_sent(test, 5, 1, 4, 2, 0);
}

static void the_limit_can_be_one_packet(struct kunit *test)
{
	kt_create(test, KT_SET(LIMIT, 1));
	kt_put(.mark = MARK(0, 9));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 8)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 9)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.notified, 0);
	kt_expect_sent(test, 4, 0);
}

static void the_job_that_holds_most_gives_one_up(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(LIMIT, 6));
	for (i = 0; i < 5; i++)
		kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(1, 9));
	/* Though it is less urgent than all of the other job. */
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 9)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 5);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 4);
	KUNIT_EXPECT_EQ(test, kt_job(1)->qlen, 2);
}

static void the_share_of_the_limit_follows_the_weight(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(LIMIT, 6));
	kt_change_class(MERCURY_MINOR_JOB(0), TCA_MERCURY_CLASS_WEIGHT, 4);
	for (i = 0; i < 3; i++)
		kt_put(.mark = MARK(0, 1));
	for (i = 0; i < 3; i++)
		kt_put(.mark = MARK(1, 1));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 9)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 6);
}

static void never_a_more_urgent_packet_for_a_less_urgent_one(struct kunit *test)
{
	struct rnd_state random;
	u32 i, d, last;

	prandom_seed_state(&random, 1);
	kt_create(test, KT_SET(JOBS, 1), KT_SET(BANDS, 8), KT_SET(LIMIT, 20));
	for (i = 0; i < 2000; i++) {
		u32 b = prandom_u32_state(&random) % 8;

		if (prandom_u32_state(&random) % 16 == 0)
			kt_get();
		kt_put(.mark = b + 1, .flow = b);
		last = mercury_job_last(kt_job(0))->number;
		for (d = 0; d < kt.drops; d++)
			KUNIT_ASSERT_GE(test, kt.dropped_flow[d], last);
	}
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 20);
}

/* 1 MiB, the least that memory_limit can be, holds ten of these. */
#define TRUESIZE 100000

static void a_full_memory_drops_a_newcomer_of_the_last_band(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN));
	for (i = 0; i < 10; i++)
		KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 2), .truesize = TRUESIZE),
				NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, 10 * TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 2), .truesize = TRUESIZE), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, 10 * TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_core()->memory_peak, 11 * TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->count.drop_memory, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->count.drop_limit, 0);
}

static void memory_up_to_the_limit_is_not_too_much(struct kunit *test)
{
	kt_create(test, KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN));
	kt_put(.mark = MARK(0, 1), .truesize = MERCURY_MEMORY_MIN - TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1), .truesize = TRUESIZE), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, MERCURY_MEMORY_MIN);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1), .truesize = 1), NET_XMIT_DROP);
}

static void memory_up_to_the_limit_is_not_to_blame(struct kunit *test)
{
	kt_create(test, KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN), KT_SET(LIMIT, 2));
	kt_put(.mark = MARK(0, 1), .truesize = MERCURY_MEMORY_MIN - 2 * TRUESIZE);
	kt_put(.mark = MARK(0, 1), .truesize = TRUESIZE);
	kt_put(.mark = MARK(0, 1), .truesize = TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_band(0, 0)->count.drop_limit, 1);
	KUNIT_EXPECT_EQ(test, kt_band(0, 0)->count.drop_memory, 0);
}

static void the_peak_of_the_memory_is_kept(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 1), .truesize = TRUESIZE);
	kt_put(.mark = MARK(1, 1), .truesize = TRUESIZE);
	kt_expect_sent(test, 1, 2);
	kt_put(.mark = MARK(0, 1), .truesize = 3000);
	kt_put(.mark = MARK(0, 1), .truesize = 3000);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, 6000);
	KUNIT_EXPECT_EQ(test, kt_core()->memory_peak, 2 * TRUESIZE);
}

static void a_large_packet_pushes_out_several(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN));
	for (i = 0; i < 10; i++)
		kt_put(.mark = MARK(0, 9), .truesize = TRUESIZE, .len = 100 + i);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1), .truesize = 4 * TRUESIZE),
			NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.drops, 4);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 7);
	KUNIT_EXPECT_EQ(test, kt_core()->memory, 10 * TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_band(0, 8)->count.drop_memory, 4);
	kt_expect_sent(test, 11, 1, 2, 3, 4, 5, 6, 0);
}

/* The other job is beyond its share at first, and then the newcomer is. */
static void a_newcomer_can_go_after_others(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN));
	for (i = 0; i < 9; i++)
		kt_put(.mark = MARK(0, 9), .truesize = TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 1), .truesize = 6 * TRUESIZE),
			NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.drops, 5);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 5);
	KUNIT_EXPECT_EQ(test, kt_job(1)->qlen, 0);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 5);
	KUNIT_EXPECT_EQ(test, kt_band(1, 0)->count.drop_memory, 1);
}

static void a_limit_of_a_job_is_its_own(struct kunit *test)
{
	kt_create_default(test);
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_LIMIT, 2);
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 9));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 9)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 1)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 4);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 9)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 3);
	KUNIT_EXPECT_EQ(test, kt_band(1, 8)->count.drop_limit, 2);
}

static void a_limit_of_a_job_spares_the_others(struct kunit *test)
{
	kt_create(test, KT_SET(LIMIT, 4));
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_LIMIT, 1);
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(1, 1));
	/* All are not too many with it. */
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 1)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 2);
	KUNIT_EXPECT_EQ(test, kt_job(1)->qlen, 1);
}

static void a_full_band_drops_the_newcomer(struct kunit *test)
{
	kt_create_default(test);
	kt_change_class(MERCURY_MINOR_BAND(0, 0), TCA_MERCURY_CLASS_LIMIT, 1);
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 1)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.dropped[0], 3);
	KUNIT_EXPECT_EQ(test, kt_band(0, 0)->count.drop_limit, 1);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(0, 2)), NET_XMIT_SUCCESS);
	kt_expect_sent(test, 2, 4, 1, 0);
}

static void the_limits_do_not_concern_the_default_class(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(LIMIT, 1), KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN));
	kt_put(.mark = MARK(0, 1));
	for (i = 0; i < 20; i++)
		KUNIT_EXPECT_EQ(test, kt_put(.mark = 0, .truesize = TRUESIZE), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 21);
}

static struct kunit_case mercury_overload_cases[] = {
	KUNIT_CASE(a_full_queue_drops_a_newcomer_of_the_last_band),
	KUNIT_CASE(of_equals_the_newcomer_is_dropped),
	KUNIT_CASE(an_urgent_newcomer_pushes_out_the_tail_of_the_last_band),
	KUNIT_CASE(the_limit_can_be_one_packet),
	KUNIT_CASE(the_job_that_holds_most_gives_one_up),
	KUNIT_CASE(the_share_of_the_limit_follows_the_weight),
	KUNIT_CASE(never_a_more_urgent_packet_for_a_less_urgent_one),
	KUNIT_CASE(a_full_memory_drops_a_newcomer_of_the_last_band),
	KUNIT_CASE(memory_up_to_the_limit_is_not_too_much),
	KUNIT_CASE(memory_up_to_the_limit_is_not_to_blame),
	KUNIT_CASE(the_peak_of_the_memory_is_kept),
	KUNIT_CASE(a_large_packet_pushes_out_several),
	KUNIT_CASE(a_newcomer_can_go_after_others),
	KUNIT_CASE(a_limit_of_a_job_is_its_own),
	KUNIT_CASE(a_limit_of_a_job_spares_the_others),
	KUNIT_CASE(a_full_band_drops_the_newcomer),
	KUNIT_CASE(the_limits_do_not_concern_the_default_class),
	{}
};

KT_SUITE(overload);

/* --- Change under load --------------------------------------------------------- */

static void bands_that_go_leave_their_packets_to_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 8));
	kt_put(.mark = MARK(0, 8));
	kt_put(.mark = MARK(0, 5));
	kt_put(.mark = MARK(0, 7));
	kt_put(.mark = MARK(0, 7));
	kt_put(.mark = MARK(0, 2));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 4)), 0);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 5);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->qlen, 4);
	/* In the order in which they would have been sent. */
	kt_expect_sent(test, 5, 2, 3, 4, 1, 0);
}

static void bands_that_come_get_the_packets_that_asked_for_them(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 2));
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(0, 3));
	kt_put(.mark = MARK(0, 9));
	KUNIT_EXPECT_EQ(test, kt_band(0, 1)->qlen, 3);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 1024)), 0);
	KUNIT_EXPECT_EQ(test, kt_band(0, 8)->qlen, 2);
	kt_expect_sent(test, 2, 1, 3, 0);
}

static void jobs_that_go_leave_their_packets_to_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 4));
	kt_put(.mark = MARK(3, 1));
	kt_put(.mark = MARK(2, 2));
	kt_put(.mark = MARK(0, 3));
	kt_put(.mark = MARK(3, 2));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 1)), 0);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 4);
	kt_expect_sent(test, 1, 2, 4, 3, 0);
}

static void jobs_that_come_get_the_packets_that_asked_for_them(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 1));
	kt_put(.mark = MARK(5, 1));
	kt_put(.mark = MARK(2, 2));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 62)), 0);
	KUNIT_EXPECT_EQ(test, kt_job(5)->qlen, 1);
	KUNIT_EXPECT_EQ(test, kt_job(2)->qlen, 1);
}

static void to_shrink_and_to_grow_again_loses_nothing(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(JOBS, 8), KT_SET(BANDS, 32));
	for (i = 0; i < 200; i++)
		kt_put(.mark = MARK(i % 8, 1 + i * 7 % 32));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 1), KT_SET(BANDS, 2)), 0);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 8), KT_SET(BANDS, 32)), 0);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 200);
	for (i = 0; i < 8; i++)
		KUNIT_EXPECT_EQ(test, kt_job(i)->qlen, 25);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 0);
}

static void counts_of_bands_that_go_are_kept_by_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 4), KT_SET(BANDS, 8));
	kt_open_tcp(test);
	kt_put(.mark = MARK(3, 8), .ack = true);
	kt_put(.mark = MARK(3, 8));
	kt_put(.mark = MARK(3, 1));
	kt_expect_sent(test, 1, 3, 2);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 2), KT_SET(BANDS, 4)), 0);
	KUNIT_EXPECT_EQ(test, kt_band(1, 0)->count.segments, 2);
	KUNIT_EXPECT_EQ(test, kt_band(1, 3)->count.segments, 1);
	KUNIT_EXPECT_EQ(test, kt_band(1, 3)->count.bytes, KT_LEN);
	KUNIT_EXPECT_EQ(test, kt_job(1)->acks, 1);
}

static void settings_of_what_stays_stay(struct kunit *test)
{
	kt_create_default(test);
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_WEIGHT, 7);
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_LIMIT, 8);
	kt_change_class(MERCURY_MINOR_BAND(1, 2), TCA_MERCURY_CLASS_LIMIT, 9);
	kt_change_class(MERCURY_MINOR_BAND(1, 2), TCA_MERCURY_CLASS_DEADLINE, 5 * MSEC);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 2), KT_SET(BANDS, 3)), 0);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 16), KT_SET(BANDS, 64)), 0);
	KUNIT_EXPECT_EQ(test, kt_job(1)->weight, 7);
	KUNIT_EXPECT_EQ(test, kt_job(1)->limit, 8);
	KUNIT_EXPECT_EQ(test, kt_band(1, 2)->limit, 9);
	KUNIT_EXPECT_EQ(test, kt_band(1, 2)->deadline, 5 * MSEC);
}

static void what_comes_has_the_defaults(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 2), KT_SET(BANDS, 4),
		  KT_DEADLINE(MERCURY_EVERY_JOB, 0, 3, 5 * MSEC));
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_WEIGHT, 7);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 3), KT_SET(BANDS, 5)), 0);
	KUNIT_EXPECT_EQ(test, kt_job(2)->weight, MERCURY_WEIGHT_DEFAULT);
	KUNIT_EXPECT_EQ(test, kt_band(1, 4)->deadline, MERCURY_DEADLINE_DEFAULT);
	KUNIT_EXPECT_EQ(test, kt_band(2, 0)->deadline, MERCURY_DEADLINE_DEFAULT);
}

static void new_sizes_and_deadlines_can_come_together(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(0, 1));
	kt_now += 2 * MSEC;
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 9), KT_DEADLINE(0, 8, 8, 1 * MSEC)), 0);
	kt_expect_sent(test, 1, 2);
}

static void shares_go_on_over_a_change(struct kunit *test)
{
	u64 bytes[KT_FLOWS], sum[2] = {};
	u32 i;

	kt_create_default(test);
	kt_saturate(0, MARK(1, 1), 200, 9000);
	kt_saturate(1, MARK(2, 1), 2000, KT_LEN);
	for (i = 0; i < 100; i++) {
		kt_send_and_sum(test, 7, bytes);
		sum[0] += bytes[0];
		sum[1] += bytes[1];
		kt_change(KT_SET(BANDS, 2 + i % 30));
	}
	kt_expect_near(test, sum[0], sum[1], 9000 + KT_LEN);
}

static void a_spent_budget_stays_spent_over_a_change(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 4));
	kt_put(.mark = MARK(0, 1));
	kt_now += 2 * MSEC;
	KUNIT_EXPECT_EQ(test, kt_get(), 1);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 5)), 0);
	kt_expect_sent(test, 3, 2);
}

static void a_saved_budget_is_kept_over_a_change(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_saturate(3, MARK(0, 4), 2, KT_LEN);
	kt_saturate(0, MARK(0, 1), 12, KT_LEN);
	kt_now += 2 * MSEC;
	/* The first is rescued on credit, which the next nine pay back. */
	kt_expect_sent(test, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 5)), 0);
	KUNIT_EXPECT_EQ(test, kt_get(), 2);
}

static void a_lower_limit_drops_the_least_urgent(struct kunit *test)
{
	u32 i;

	kt_create_default(test);
	for (i = 0; i < 10; i++)
		kt_put(.mark = MARK(0, 10 - i), .len = 100 + i);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(LIMIT, 3)), 0);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 3);
	KUNIT_EXPECT_EQ(test, kt.parent->qstats.backlog, 107 + 108 + 109);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 7);
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 3);
	kt_expect_sent(test, 10, 9, 8, 0);
}

static void a_lower_memory_limit_drops_the_least_urgent(struct kunit *test)
{
	u32 i;

	kt_create_default(test);
	for (i = 0; i < 20; i++)
		kt_put(.mark = MARK(0, 20 - i), .truesize = TRUESIZE);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN)), 0);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 10);
	KUNIT_EXPECT_EQ(test, kt_band(0, 19)->count.drop_memory, 1);
	KUNIT_EXPECT_EQ(test, kt_get(), 20);
}

static void a_lower_limit_of_a_job_drops_its_least_urgent(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 9));
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 1));
	KUNIT_EXPECT_EQ(test, kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_LIMIT, 1), 0);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 2);
	KUNIT_EXPECT_EQ(test, kt_band(1, 8)->count.drop_limit, 1);
	KUNIT_EXPECT_EQ(test, kt_job(0)->qlen, 1);
}

static void a_lower_limit_of_a_band_spares_what_is_queued(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 9));
	kt_change_class(MERCURY_MINOR_BAND(1, 8), TCA_MERCURY_CLASS_LIMIT, 1);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 9)), NET_XMIT_DROP);
	kt_expect_sent(test, 1, 2, 3, 0);
	KUNIT_EXPECT_EQ(test, kt_put(.mark = MARK(1, 9)), NET_XMIT_SUCCESS);
}

static void jobs_that_merge_keep_to_the_limit_of_the_last(struct kunit *test)
{
	kt_create(test, KT_SET(JOBS, 3));
	kt_change_class(MERCURY_MINOR_JOB(1), TCA_MERCURY_CLASS_LIMIT, 2);
	kt_put(.mark = MARK(1, 1));
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(2, 2));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 2)), 0);
	KUNIT_EXPECT_EQ(test, kt_job(1)->qlen, 2);
	kt_expect_sent(test, 1, 3, 0);
}

static void a_new_key_is_for_new_packets(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(1, 9), .priority = 3);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(KEY, MERCURY_KEY_PRIORITY)), 0);
	kt_expect_at(test, 1, 8);
	kt_put(.mark = MARK(1, 9), .priority = 3);
	kt_expect_at(test, 0, 2);
}

static void a_peeked_packet_stays_the_next(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 8));
	kt_put(.mark = MARK(0, 8));
	KUNIT_EXPECT_EQ(test, kt_peek(), 1);
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(BANDS, 2), KT_SET(LIMIT, 1)), 0);
	KUNIT_EXPECT_EQ(test, kt_peek(), 1);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 2);
	kt_expect_sent(test, 1, 2, 0);
}

static void a_refused_change_changes_nothing(struct kunit *test)
{
	struct mercury_config before;

	kt_create_default(test);
	kt_put(.mark = MARK(0, 1));
	before = kt_q()->config;
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(LIMIT, 5), KT_SET(BANDS, 2), KT_SET(RATE, 1)),
			-EINVAL);
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(LIMIT, 5), KT_DEADLINE(0, 0, 0, 1 * MSEC),
					KT_DEADLINE(0, 3, 2, 1 * MSEC)), -EINVAL);
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	KUNIT_EXPECT_MEMEQ(test, &kt_q()->config, &before, sizeof(before));
	KUNIT_EXPECT_EQ(test, kt_core()->bands, MERCURY_BANDS_DEFAULT);
	KUNIT_EXPECT_EQ(test, kt_band(0, 0)->deadline, MERCURY_DEADLINE_DEFAULT);
}

static void a_change_without_memory_changes_nothing(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 1));
	kt_no_memory = true;
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(LIMIT, 5), KT_SET(BANDS, 2)), -ENOMEM);
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	KUNIT_EXPECT_EQ(test, kt_core()->bands, MERCURY_BANDS_DEFAULT);
	KUNIT_EXPECT_EQ(test, kt_q()->config.limit, MERCURY_LIMIT_DEFAULT);
}

static struct kunit_case mercury_change_cases[] = {
	KUNIT_CASE(bands_that_go_leave_their_packets_to_the_last),
	KUNIT_CASE(bands_that_come_get_the_packets_that_asked_for_them),
	KUNIT_CASE(jobs_that_go_leave_their_packets_to_the_last),
	KUNIT_CASE(jobs_that_come_get_the_packets_that_asked_for_them),
	KUNIT_CASE(to_shrink_and_to_grow_again_loses_nothing),
	KUNIT_CASE(counts_of_bands_that_go_are_kept_by_the_last),
	KUNIT_CASE(settings_of_what_stays_stay),
	KUNIT_CASE(what_comes_has_the_defaults),
	KUNIT_CASE(new_sizes_and_deadlines_can_come_together),
	KUNIT_CASE(shares_go_on_over_a_change),
	KUNIT_CASE(a_spent_budget_stays_spent_over_a_change),
	KUNIT_CASE(a_saved_budget_is_kept_over_a_change),
	KUNIT_CASE(a_lower_limit_drops_the_least_urgent),
	KUNIT_CASE(a_lower_memory_limit_drops_the_least_urgent),
	KUNIT_CASE(a_lower_limit_of_a_job_drops_its_least_urgent),
	KUNIT_CASE(a_lower_limit_of_a_band_spares_what_is_queued),
	KUNIT_CASE(jobs_that_merge_keep_to_the_limit_of_the_last),
	KUNIT_CASE(a_new_key_is_for_new_packets),
	KUNIT_CASE(a_peeked_packet_stays_the_next),
	KUNIT_CASE(a_refused_change_changes_nothing),
	KUNIT_CASE(a_change_without_memory_changes_nothing),
	{}
};

KT_SUITE(change);

/* --- Birth and death ------------------------------------------------------------- */

static void a_refused_option_makes_no_qdisc(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, kt_try_create(KT_OPTIONS(KT_SET(JOBS, 0))));
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	KUNIT_EXPECT_FALSE(test, kt_try_create(KT_OPTIONS(KT_SET(BANDS, 1024),
							  KT_DEADLINE(0, 0, 1024, 1 * MSEC))));
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	/* And leaves nothing in the way of the next. */
	kt_create_default(test);
}

static void without_memory_there_is_no_qdisc(struct kunit *test)
{
	kt_no_memory = true;
	KUNIT_EXPECT_FALSE(test, kt_try_create(NULL));
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	kt_no_memory = false;
	kt_create_default(test);
}

static void to_destroy_it_frees_what_is_queued(struct kunit *test)
{
	kt_make_root(KT_HANDLE);
	kt_create_default(test);
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(5, 64));
	kt_put(.mark = 0);
	kt_peek();
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 3);
	kt_destroy();
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 0);
}

static void kt_reset(void)
{
	rtnl_lock();
	sch_tree_lock(kt.sch);
	qdisc_reset(kt.sch);
	sch_tree_unlock(kt.sch);
	rtnl_unlock();
	kt_check();
}

static void a_reset_empties_it(struct kunit *test)
{
	u32 i;

	kt_make_root(KT_HANDLE);
	kt_create(test, KT_SET(BANDS, 100), KT_SET(LIMIT, 50), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	for (i = 0; i < 60; i++)
		kt_put(.mark = MARK(i % 3, 1 + i * 7 % 100));
	kt_put(.mark = 0);
	kt_peek();
	kt_reset();
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 0);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, kt_q()->child->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, kt_get(), 0);
	KUNIT_EXPECT_EQ(test, kt_job(0)->heap_len, 0);
}

static void a_reset_keeps_the_settings_and_counts(struct kunit *test)
{
	kt_make_root(KT_HANDLE);
	kt_create(test, KT_SET(BANDS, 100), KT_DEADLINE(0, 3, 3, 1 * MSEC));
	kt_put(.mark = MARK(0, 9));
	kt_get();
	kt_put(.mark = MARK(0, 9));
	kt_reset();
	KUNIT_EXPECT_EQ(test, kt_core()->bands, 100);
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->deadline, 1 * MSEC);
	KUNIT_EXPECT_EQ(test, kt_band(0, 8)->count.segments, 1);
	kt_put(.mark = MARK(0, 100));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 4, 3, 0);
}

static void a_reset_forgets_that_the_link_is_busy(struct kunit *test)
{
	kt_make_root(KT_HANDLE);
	kt_create(test, KT_SET(RATE, 1000000));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	KUNIT_EXPECT_NE(test, kt_timer, 0);
	kt_reset();
	KUNIT_EXPECT_EQ(test, kt_timer, 0);
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt_get(), 3);
}

static struct kunit_case mercury_life_cases[] = {
	KUNIT_CASE(a_refused_option_makes_no_qdisc),
	KUNIT_CASE(without_memory_there_is_no_qdisc),
	KUNIT_CASE(to_destroy_it_frees_what_is_queued),
	KUNIT_CASE(a_reset_empties_it),
	KUNIT_CASE(a_reset_keeps_the_settings_and_counts),
	KUNIT_CASE(a_reset_forgets_that_the_link_is_busy),
	{}
};

KT_SUITE(life);

/* --- GSO ---------------------------------------------------------------------------- */

#define GSO_HEADERS (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define GSO_SIZE 1000

/* A TCP packet of so many segments, all full but for the last, of half that. */
static struct sk_buff *kt_make_gso(u32 mark, u32 segments, u16 flow)
{
	u32 len = GSO_HEADERS + segments * GSO_SIZE - GSO_SIZE / 2;
	struct sk_buff *skb = kt_alloc(len);
	struct tcphdr *tcp;

	kt_make_ip(skb, INET_ECN_ECT_0);
	ip_hdr(skb)->protocol = IPPROTO_TCP;
	ip_send_check(ip_hdr(skb));
	tcp = tcp_hdr(skb);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->ack = 1;
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct tcphdr, check);
	skb_shinfo(skb)->gso_size = GSO_SIZE;
	skb_shinfo(skb)->gso_segs = segments;
	skb_shinfo(skb)->gso_type = SKB_GSO_TCPV4;
	kt_set_size(skb, len + (segments - 1) * GSO_HEADERS, segments);
	skb->mark = mark;
	kt_name(skb)->flow = flow;
	kt.splits = true;
	return skb;
}

static void split_gso_cuts_packets_up(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->qlen, 5);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 5);
	KUNIT_EXPECT_EQ(test, kt.parent->qstats.backlog, 5 * GSO_HEADERS + 5 * GSO_SIZE - 500);
	KUNIT_EXPECT_EQ(test, kt_q()->gso_split, 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 0);
	for (i = 0; i < 5; i++) {
		KUNIT_EXPECT_EQ(test, kt_get(), 1);
		KUNIT_EXPECT_EQ(test, kt.len, GSO_HEADERS + (i < 4 ? GSO_SIZE : GSO_SIZE / 2));
	}
}

static void the_order_of_segments_is_that_of_the_stream(struct kunit *test)
{
	struct sk_buff *skb;
	u32 i;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0));
	for (i = 0; i < 5; i++) {
		skb = kt_dequeue();
		KUNIT_ASSERT_NOT_NULL(test, skb);
		KUNIT_EXPECT_FALSE(test, skb_is_gso(skb));
		KUNIT_EXPECT_EQ(test, ntohl(tcp_hdr(skb)->seq), i * GSO_SIZE);
		kfree_skb(skb);
	}
}

static void no_split_gso_leaves_packets_whole(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_OFF), KT_SET(RATE, 1000000));
	skb = kt_make_gso(MARK(1, 2), 5, 0);
	KUNIT_EXPECT_EQ(test, kt_enqueue(skb), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->qlen, 1);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->backlog, qdisc_pkt_len(skb));
	KUNIT_EXPECT_EQ(test, kt_q()->gso_split, 0);
}

static void a_whole_packet_counts_as_its_segments(struct kunit *test)
{
	kt_create_default(test);
	kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0));
	kt_put(.mark = MARK(1, 2));
	kt_expect_sent(test, 1, 2);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.segments, 6);
	KUNIT_EXPECT_EQ(test, u64_stats_read(&kt.sch->bstats.packets), 6);
}

struct kt_auto {
	u64 rate;
	bool split;
};

static const struct kt_auto kt_autos[] = {
	{ 0, false },
	{ MERCURY_RATE_MIN, true },
	{ MERCURY_SPLIT_RATE - 1, true },
	{ MERCURY_SPLIT_RATE, false },
	{ MERCURY_RATE_MAX, false },
};

static void kt_auto_name(const struct kt_auto *parameter, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "rate %llu", parameter->rate);
}

KUNIT_ARRAY_PARAM(kt_autos, kt_autos, kt_auto_name);

static void split_gso_auto_is_on_below_1_gbit(struct kunit *test)
{
	const struct kt_auto *parameter = test->param_value;

	kt_create(test, KT_SET(RATE, parameter->rate));
	kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0));
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->qlen, parameter->split ? 5 : 1);
	/* And follows a change of the rate. */
	kt_change(KT_SET(RATE, MERCURY_SPLIT_RATE / 2));
	kt_enqueue(kt_make_gso(MARK(2, 2), 5, 0));
	KUNIT_EXPECT_EQ(test, kt_band(2, 1)->qlen, 5);
}

/* Whatever the parent thought of its length: kt_check() compares. */
static void the_parent_learns_the_length_of_the_segments(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	skb = kt_make_gso(MARK(1, 2), 5, 0);
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	kt_enqueue(skb);
	skb = kt_make_gso(MARK(1, 2), 5, 0);
	qdisc_skb_cb(skb)->pkt_len = 2 * skb->len;
	kt_enqueue(skb);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 10);
}

static void a_band_can_fill_up_in_the_middle_of_a_split(struct kunit *test)
{
	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	kt_change_class(MERCURY_MINOR_BAND(1, 1), TCA_MERCURY_CLASS_LIMIT, 3);
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->qlen, 3);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.drop_limit, 2);
	KUNIT_EXPECT_EQ(test, kt.drops, 2);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 3);
	/* And be full at its beginning. */
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(MARK(1, 2), 5, 0)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.drops, 5);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 3);
}

static void segments_push_out_others_and_then_their_own_tail(struct kunit *test)
{
	u32 i;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON), KT_SET(LIMIT, 4));
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 9));
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(MARK(1, 1), 5, 0)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_band(1, 8)->qlen, 0);
	KUNIT_EXPECT_EQ(test, kt_band(1, 0)->qlen, 4);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 4);
	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_EQ(test, kt_get(), 3);
		KUNIT_EXPECT_EQ(test, kt.len, GSO_HEADERS + GSO_SIZE);
	}
}

static void segments_that_are_all_pushed_out_are_a_drop(struct kunit *test)
{
	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON), KT_SET(LIMIT, 2));
	kt_put(.mark = MARK(1, 1));
	kt_put(.mark = MARK(1, 9));
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(MARK(1, 9), 5, 0)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.drops, 5);
	kt_expect_sent(test, 1, 2, 0);
}

static void what_cannot_be_segmented_is_dropped(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	skb = kt_make_gso(MARK(1, 2), 5, 0);
	skb->protocol = htons(ETH_P_LOOPBACK);
	KUNIT_EXPECT_EQ(test, kt_enqueue(skb), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt_q()->drop_gso, 1);
	KUNIT_EXPECT_EQ(test, kt_q()->gso_split, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, 1);
}

static void unmarked_packets_are_split_for_the_child(struct kunit *test)
{
	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(0, 5, 0)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_q()->child->q.qlen, 5);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 5);
}

/* fifo takes its limit from the device. */
static void the_child_can_fill_up_in_the_middle_of_a_split(struct kunit *test)
{
	kt.dev->tx_queue_len = 3;
	default_qdisc_ops = &pfifo_qdisc_ops;
	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(0, 5, 0)), NET_XMIT_SUCCESS);
	KUNIT_EXPECT_EQ(test, kt_q()->child->q.qlen, 3);
	KUNIT_EXPECT_EQ(test, kt.drops, 2);
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(0, 5, 0)), NET_XMIT_DROP);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 3);
}

static void segments_have_the_deadline_of_their_packet(struct kunit *test)
{
	struct sk_buff *skb;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	kt_open_socket(test, SOCK_DGRAM, IPPROTO_UDP, CLOCK_MONOTONIC);
	skb = kt_make_gso(MARK(1, 2), 2, 0);
	kt_enqueue(skb);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->due, KT_START + MERCURY_DEADLINE_DEFAULT);
	kt_now += 101 * MSEC;
	kt_get();
	kt_get();
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.missed, 2);
}

static struct kunit_case mercury_gso_cases[] = {
	KUNIT_CASE(split_gso_cuts_packets_up),
	KUNIT_CASE(the_order_of_segments_is_that_of_the_stream),
	KUNIT_CASE(no_split_gso_leaves_packets_whole),
	KUNIT_CASE(a_whole_packet_counts_as_its_segments),
	KUNIT_CASE_PARAM(split_gso_auto_is_on_below_1_gbit, kt_autos_gen_params),
	KUNIT_CASE(the_parent_learns_the_length_of_the_segments),
	KUNIT_CASE(a_band_can_fill_up_in_the_middle_of_a_split),
	KUNIT_CASE(segments_push_out_others_and_then_their_own_tail),
	KUNIT_CASE(segments_that_are_all_pushed_out_are_a_drop),
	KUNIT_CASE(what_cannot_be_segmented_is_dropped),
	KUNIT_CASE(unmarked_packets_are_split_for_the_child),
	KUNIT_CASE(the_child_can_fill_up_in_the_middle_of_a_split),
	KUNIT_CASE(segments_have_the_deadline_of_their_packet),
	{}
};

KT_SUITE(gso);

/* --- ECN ------------------------------------------------------------------------------ */

/* Put a packet with this ECN field, wait, and see what it is sent with. */
static u8 kt_ecn_after(struct kunit *test, u8 ecn, u64 wait)
{
	struct sk_buff *skb;

	kt_put(.mark = MARK(1, 2), .dscp = 5, .ecn = ecn);
	kt_now += wait;
	skb = kt_dequeue();
	KUNIT_ASSERT_NOT_NULL(test, skb);
	ecn = ip_hdr(skb)->tos & INET_ECN_MASK;
	KUNIT_EXPECT_EQ(test, ip_hdr(skb)->tos >> 2, 5);
	KUNIT_EXPECT_EQ(test, ip_fast_csum(ip_hdr(skb), ip_hdr(skb)->ihl), 0);
	kfree_skb(skb);
	return ecn;
}

static void a_packet_that_waits_too_long_is_marked(struct kunit *test)
{
	kt_create(test, KT_SET(CE_THRESHOLD, 1 * MSEC));
	KUNIT_EXPECT_EQ(test, kt_ecn_after(test, INET_ECN_ECT_0, 1 * MSEC + 1), INET_ECN_CE);
	KUNIT_EXPECT_EQ(test, kt_ecn_after(test, INET_ECN_ECT_1, 2 * MSEC), INET_ECN_CE);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.ce_marks, 2);
}

static void a_packet_that_waits_no_longer_is_not_marked(struct kunit *test)
{
	kt_create(test, KT_SET(CE_THRESHOLD, 1 * MSEC));
	KUNIT_EXPECT_EQ(test, kt_ecn_after(test, INET_ECN_ECT_0, 1 * MSEC), INET_ECN_ECT_0);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.ce_marks, 0);
}

static void a_packet_that_knows_no_ecn_is_not_marked(struct kunit *test)
{
	kt_create(test, KT_SET(CE_THRESHOLD, 1 * MSEC));
	KUNIT_EXPECT_EQ(test, kt_ecn_after(test, INET_ECN_NOT_ECT, 9 * MSEC), INET_ECN_NOT_ECT);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.ce_marks, 0);
	/* Not even if it is not IP. */
	kt_put(.mark = MARK(1, 2));
	kt_now += 9 * MSEC;
	kt_get();
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.ce_marks, 0);
}

static void without_a_threshold_nothing_is_marked(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_ecn_after(test, INET_ECN_ECT_0, 3600 * NSEC_PER_SEC),
			INET_ECN_ECT_0);
}

static struct kunit_case mercury_ecn_cases[] = {
	KUNIT_CASE(a_packet_that_waits_too_long_is_marked),
	KUNIT_CASE(a_packet_that_waits_no_longer_is_not_marked),
	KUNIT_CASE(a_packet_that_knows_no_ecn_is_not_marked),
	KUNIT_CASE(without_a_threshold_nothing_is_marked),
	{}
};

KT_SUITE(ecn);

/* --- The shaper ------------------------------------------------------------------------ */

#define RATE_1MB 1000000 /* bytes a second: a packet takes 1 ms */

static void the_next_packet_waits_until_the_link_is_free(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, KT_START + 1 * MSEC);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.overlimits, 1);
	kt_now = kt_timer - 1;
	KUNIT_EXPECT_EQ(test, kt_get(), 0);
	kt_now = kt_timer;
	KUNIT_EXPECT_EQ(test, kt_get(), 2);
}

static void the_rate_is_exact_over_many_packets(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_saturate(0, MARK(0, 1), 500, KT_LEN);
	kt_saturate(1, 0, 500, KT_LEN);
	kt_drain();
	KUNIT_EXPECT_EQ(test, kt.got, 1000);
	KUNIT_EXPECT_EQ(test, kt_now, KT_START + 999 * MSEC);
}

static void an_empty_queue_sets_no_timer(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, 0);
}

static void an_idle_link_saves_nothing_up(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1);
	kt_now += NSEC_PER_SEC;
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 2, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, kt_now + 1 * MSEC);
}

static void a_late_timer_is_made_up_for(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_saturate(0, MARK(0, 1), 5, KT_LEN);
	kt_expect_sent(test, 1, 0);
	kt_now = KT_START + 1500 * NSEC_PER_USEC;
	kt_expect_sent(test, 2, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, KT_START + 2 * MSEC);
}

static void a_very_late_timer_is_made_up_for_by_1_ms(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_saturate(0, MARK(0, 1), 9, KT_LEN);
	kt_expect_sent(test, 1, 0);
	kt_now = KT_START + 50 * MSEC;
	kt_expect_sent(test, 2, 3, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, KT_START + 51 * MSEC);
}

static void a_parent_that_peeks_changes_no_time(struct kunit *test)
{
	kt.parent_peeks = true;
	kt_create(test, KT_SET(RATE, RATE_1MB));
	kt_saturate(0, MARK(0, 1), 100, KT_LEN);
	kt_drain();
	KUNIT_EXPECT_EQ(test, kt_now, KT_START + 99 * MSEC);
}

static void without_a_rate_nothing_waits(struct kunit *test)
{
	kt_create_default(test);
	kt_saturate(0, MARK(0, 1), 100, 60000);
	kt_drain();
	KUNIT_EXPECT_EQ(test, kt_now, KT_START);
	KUNIT_EXPECT_EQ(test, kt_timer, 0);
}

static const u64 kt_rates[] = {
	MERCURY_RATE_MIN, 999, 12500000, MERCURY_SPLIT_RATE, 1250000000, 12500000000,
	MERCURY_RATE_MAX,
};

static void kt_rate_name(const u64 *rate, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "%llu bytes/s", *rate);
}

KUNIT_ARRAY_PARAM(kt_rates, kt_rates, kt_rate_name);

static void every_rate_is_kept(struct kunit *test)
{
	u64 rate = *(const u64 *)test->param_value;
	u64 wanted = div64_u64(60000 * NSEC_PER_SEC, rate);

	kt_create(test, KT_SET(RATE, rate));
	kt_saturate(0, MARK(0, 1), 2, 60000);
	KUNIT_EXPECT_EQ(test, kt_get(), 1);
	kt_expect_near(test, kt_q()->next_send - KT_START, wanted, 1 + wanted / 1000000);
}

static void a_higher_rate_frees_the_link(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, MERCURY_RATE_MIN));
	kt_put(.mark = MARK(0, 1), .len = 60000);
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	kt_change(KT_SET(RATE, RATE_1MB));
	/* Not after eight minutes, but when the new rate would have sent it. */
	KUNIT_EXPECT_TRUE(test, kt_woken || (kt_timer && kt_timer <= KT_START + 60 * MSEC));
	kt_now += 60 * MSEC;
	kt_expect_sent(test, 2);
}

static void to_shape_no_more_wakes_the_device(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, MERCURY_RATE_MIN));
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	kt_change(KT_SET(RATE, 0));
	KUNIT_EXPECT_TRUE(test, kt_woken);
	kt_expect_sent(test, 2);
}

static struct kunit_case mercury_shaper_cases[] = {
	KUNIT_CASE(the_next_packet_waits_until_the_link_is_free),
	KUNIT_CASE(the_rate_is_exact_over_many_packets),
	KUNIT_CASE(an_empty_queue_sets_no_timer),
	KUNIT_CASE(an_idle_link_saves_nothing_up),
	KUNIT_CASE(a_late_timer_is_made_up_for),
	KUNIT_CASE(a_very_late_timer_is_made_up_for_by_1_ms),
	KUNIT_CASE(a_parent_that_peeks_changes_no_time),
	KUNIT_CASE(without_a_rate_nothing_waits),
	KUNIT_CASE_PARAM(every_rate_is_kept, kt_rates_gen_params),
	KUNIT_CASE(a_higher_rate_frees_the_link),
	KUNIT_CASE(to_shape_no_more_wakes_the_device),
	{}
};

KT_SUITE(shaper);

/* --- The default class -------------------------------------------------------------------- */

static void its_child_is_the_default_of_the_system(struct kunit *test)
{
	default_qdisc_ops = &bfifo_qdisc_ops;
	kt_create_default(test);
	KUNIT_EXPECT_PTR_EQ(test, kt_q()->child->ops, &bfifo_qdisc_ops);
	KUNIT_EXPECT_EQ(test, kt_q()->child->parent, CLASSID(MERCURY_MINOR_DEFAULT));
	KUNIT_EXPECT_PTR_EQ(test, mercury_leaf(kt.sch, MERCURY_MINOR_DEFAULT), kt_q()->child);
	KUNIT_EXPECT_NULL(test, mercury_leaf(kt.sch, MERCURY_MINOR_BAND(0, 0)));
}

static void its_child_is_not_mercury_itself(struct kunit *test)
{
	default_qdisc_ops = &mercury_qdisc_ops;
	kt_create_default(test);
	KUNIT_EXPECT_PTR_EQ(test, kt_q()->child->ops, &pfifo_fast_ops);
}

static struct Qdisc_ops kt_noqueue_ops = {
	.id = "kt_noqueue",
	.owner = THIS_MODULE,
};

static void its_child_is_not_one_without_a_queue(struct kunit *test)
{
	default_qdisc_ops = &kt_noqueue_ops;
	kt_create_default(test);
	KUNIT_EXPECT_PTR_EQ(test, kt_q()->child->ops, &pfifo_fast_ops);
	kt_put(.mark = 0);
	kt_expect_sent(test, 1);
}

static void without_a_handle_its_child_is_pfifo_fast(struct kunit *test)
{
	default_qdisc_ops = &bfifo_qdisc_ops;
	kt_make_root(0);
	kt_create_default(test);
	KUNIT_EXPECT_PTR_EQ(test, kt_q()->child->ops, &pfifo_fast_ops);
	kt_put(.mark = 0);
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 2);
}

static void its_child_works_under_the_lock_of_the_root(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_q()->child->flags & (TCQ_F_NOLOCK | TCQ_F_CPUSTATS), 0);
	KUNIT_EXPECT_NULL(test, kt_q()->child->cpu_bstats);
	KUNIT_EXPECT_NULL(test, kt_q()->child->cpu_qstats);
}

static void a_child_that_is_replaced_takes_its_packets_along(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = 0);
	kt_put(.mark = 0);
	kt_put(.mark = MARK(0, 1));
	kt_graft_child(test);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 1);
	KUNIT_EXPECT_EQ(test, kt.notified, 0);
	kt_put(.mark = 0);
	kt_expect_sent(test, 3, 4, 0);
}

static void the_parent_learns_that_the_last_packet_went_along(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = 0);
	kt_graft_child(test);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 0);
	KUNIT_EXPECT_GE(test, kt.notified, 1);
}

static void a_child_that_is_taken_away_leaves_the_default(struct kunit *test)
{
	kt_create_default(test);
	kt_graft_child(test);
	KUNIT_EXPECT_EQ(test, kt_graft(MERCURY_MINOR_DEFAULT, NULL), 0);
	KUNIT_EXPECT_PTR_EQ(test, kt_q()->child->ops, &pfifo_fast_ops);
	kt_put(.mark = 0);
	kt_expect_sent(test, 1);
}

static void no_other_class_takes_a_child(struct kunit *test)
{
	kt_create_default(test);
	KUNIT_EXPECT_EQ(test, kt_graft(MERCURY_MINOR_BAND(0, 0), NULL), -EOPNOTSUPP);
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
	KUNIT_EXPECT_EQ(test, kt_graft(MERCURY_MINOR_JOB(0), NULL), -EOPNOTSUPP);
	KUNIT_EXPECT_NOT_NULL(test, kt.message);
}

struct kt_verdict {
	const char *name;
	enum kt_child_mode mode;
	int ret;
	u32 qlen; /* after two packets */
	u32 drops; /* that we count of the second */
};

static const struct kt_verdict kt_verdicts[] = {
	{ "queued", KT_CHILD_QUEUES, NET_XMIT_SUCCESS, 2, 0 },
	{ "dropped", KT_CHILD_DROPS, NET_XMIT_DROP, 1, 1 },
	{ "stolen", KT_CHILD_STEALS, NET_XMIT_SUCCESS | __NET_XMIT_STOLEN, 1, 0 },
	{ "bypassed", KT_CHILD_BYPASSES, NET_XMIT_SUCCESS | __NET_XMIT_BYPASS, 1, 1 },
	{ "another dropped", KT_CHILD_DROPS_HEAD, NET_XMIT_SUCCESS, 1, 1 },
	{ "congested", KT_CHILD_CONGESTED, NET_XMIT_CN, 1, 1 },
};

static void kt_verdict_name(const struct kt_verdict *verdict, char *name)
{
	strscpy(name, verdict->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(kt_verdicts, kt_verdicts, kt_verdict_name);

static void what_the_child_says_the_parent_hears(struct kunit *test)
{
	const struct kt_verdict *verdict = test->param_value;

	kt_create_default(test);
	kt_graft_child(test);
	kt_put(.mark = 0, .len = 700);
	kt.child_mode = verdict->mode;
	KUNIT_EXPECT_EQ(test, kt_put(.mark = 0), verdict->ret);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, verdict->qlen);
	KUNIT_EXPECT_EQ(test, kt.sch->qstats.drops, verdict->drops);
}

/* One word for five segments, which TCP takes for the packet as a whole. */
static void what_the_child_says_of_segments_the_parent_hears(struct kunit *test)
{
	const struct kt_verdict *verdict = test->param_value;

	kt_create(test, KT_SET(SPLIT_GSO, MERCURY_SPLIT_ON));
	kt_graft_child(test);
	kt_put(.mark = 0, .len = 700);
	kt.child_mode = verdict->mode;
	KUNIT_EXPECT_EQ(test, kt_enqueue(kt_make_gso(0, 5, 0)), verdict->ret);
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, verdict->mode == KT_CHILD_QUEUES ? 6 : 1);
}

static void a_child_that_holds_its_packets_holds_up_nobody(struct kunit *test)
{
	kt_create_default(test);
	kt_graft_child(test);
	kt.child_holds = true;
	kt_put(.mark = 0);
	kt_put(.mark = MARK(0, 1));
	kt_put(.mark = MARK(3, 1));
	kt_expect_sent(test, 2, 3, 0, 0);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 1);
	kt.child_holds = false;
	kt_expect_sent(test, 1, 0);
}

/* As a child with a timer may, when it drops what is too old. */
static void a_child_may_empty_itself(struct kunit *test)
{
	struct Qdisc *child;

	kt_create_default(test);
	child = kt_graft_child(test);
	kt_put(.mark = 0);
	kt_put(.mark = 0);
	kt.notified = 0;
	rtnl_lock();
	sch_tree_lock(kt.sch);
	qdisc_purge_queue(child);
	sch_tree_unlock(kt.sch);
	rtnl_unlock();
	kt_check();
	KUNIT_EXPECT_EQ(test, kt.parent->q.qlen, 0);
	KUNIT_EXPECT_EQ(test, kt_core()->active, 0);
	KUNIT_EXPECT_EQ(test, kt.notified, 1);
	kt_put(.mark = 0);
	kt_expect_sent(test, 3, 0);
}

static struct kunit_case mercury_default_class_cases[] = {
	KUNIT_CASE(its_child_is_the_default_of_the_system),
	KUNIT_CASE(its_child_is_not_mercury_itself),
	KUNIT_CASE(its_child_is_not_one_without_a_queue),
	KUNIT_CASE(without_a_handle_its_child_is_pfifo_fast),
	KUNIT_CASE(its_child_works_under_the_lock_of_the_root),
	KUNIT_CASE(a_child_that_is_replaced_takes_its_packets_along),
	KUNIT_CASE(the_parent_learns_that_the_last_packet_went_along),
	KUNIT_CASE(a_child_that_is_taken_away_leaves_the_default),
	KUNIT_CASE(no_other_class_takes_a_child),
	KUNIT_CASE_PARAM(what_the_child_says_the_parent_hears, kt_verdicts_gen_params),
	KUNIT_CASE_PARAM(what_the_child_says_of_segments_the_parent_hears, kt_verdicts_gen_params),
	KUNIT_CASE(a_child_that_holds_its_packets_holds_up_nobody),
	KUNIT_CASE(a_child_may_empty_itself),
	{}
};

KT_SUITE(default_class);

/* --- A packet that is alone ------------------------------------------------------------------ */
/* It takes a short cut, and must not be told from one that does not. */

static void a_lone_packet_is_counted_in_its_band(struct kunit *test)
{
	struct mercury_counters *count;

	kt_create(test, KT_SET(CE_THRESHOLD, 1 * MSEC));
	kt_put(.mark = MARK(2, 5), .len = 500, .dscp = 1, .ecn = INET_ECN_ECT_0);
	kt_now += 150 * MSEC;
	KUNIT_EXPECT_EQ(test, kt_get(), 1);
	kt_put(.mark = MARK(2, 5));
	KUNIT_EXPECT_EQ(test, kt_get(), 2);
	count = &kt_band(2, 4)->count;
	KUNIT_EXPECT_EQ(test, count->segments, 2);
	KUNIT_EXPECT_EQ(test, count->bytes, 500 + KT_LEN);
	KUNIT_EXPECT_EQ(test, count->missed, 1);
	KUNIT_EXPECT_EQ(test, count->lateness, 50 * MSEC);
	KUNIT_EXPECT_EQ(test, count->met, 1);
	KUNIT_EXPECT_EQ(test, count->rescued, 0);
	KUNIT_EXPECT_EQ(test, count->ce_marks, 1);
	KUNIT_EXPECT_EQ(test, count->sojourn[0], 1);
	KUNIT_EXPECT_EQ(test, u64_stats_read(&kt.sch->bstats.bytes), 500 + KT_LEN);
}

static void lone_packets_are_paid_for(struct kunit *test)
{
	u32 i;

	kt_create_default(test);
	kt_put(.mark = MARK(1, 1), .len = 60000);
	kt_get();
	kt_put(.mark = MARK(1, 1), .flow = 1);
	kt_saturate(2, MARK(2, 1), 100, KT_LEN);
	for (i = 0; i < 60; i++) {
		kt_get();
		KUNIT_EXPECT_EQ(test, kt.flow, 2);
	}
	kt_get();
	KUNIT_EXPECT_EQ(test, kt.flow, 1);
}

static void who_sends_lone_packets_saves_nothing_up(struct kunit *test)
{
	u64 bytes[KT_FLOWS];

	kt_create_default(test);
	kt_saturate(1, MARK(1, 1), 1000, KT_LEN);
	kt_drain();
	kt_put(.mark = MARK(2, 1));
	kt_get();
	kt_saturate(1, MARK(1, 1), 200, KT_LEN);
	kt_saturate(2, MARK(2, 1), 200, KT_LEN);
	kt_send_and_sum(test, 200, bytes);
	kt_expect_near(test, bytes[2], 100 * KT_LEN, 2 * KT_LEN);
}

static void a_lone_packet_is_overtaken_as_any(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = MARK(1, 1));
	kt_expect_sent(test, 2, 1);
	/* It is the turn of the unmarked one, now that the job has sent two. */
	kt_put(.mark = MARK(1, 9));
	kt_put(.mark = 0);
	kt_put(.mark = MARK(1, 1));
	kt_expect_sent(test, 4, 5, 3);
}

static void a_lone_packet_has_the_deadline_of_its_band(struct kunit *test)
{
	kt_create(test, KT_SET(BANDS, 4), KT_SET(RESCUE, 100));
	kt_put(.mark = MARK(0, 4));
	kt_change_class(MERCURY_MINOR_BAND(0, 3), TCA_MERCURY_CLASS_DEADLINE, 1 * MSEC);
	kt_now += 1 * MSEC;
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 2);
	kt_put(.mark = MARK(0, 4));
	kt_now += 2 * MSEC;
	kt_get();
	KUNIT_EXPECT_EQ(test, kt_band(0, 3)->count.missed, 1);
}

static void a_lone_packet_survives_a_change(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(9, 9));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(JOBS, 2), KT_SET(BANDS, 2), KT_SET(LIMIT, 1)), 0);
	KUNIT_EXPECT_EQ(test, kt.sch->q.qlen, 1);
	kt_put(.mark = MARK(9, 1));
	kt_expect_sent(test, 2, 0);
	KUNIT_EXPECT_EQ(test, kt_band(1, 1)->count.drop_limit, 1);
}

static void a_lone_packet_is_shaped(struct kunit *test)
{
	kt_create(test, KT_SET(RATE, MERCURY_SPLIT_RATE));
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, KT_START + 8 * NSEC_PER_USEC);
	kt_now = kt_timer;
	kt_expect_sent(test, 2, 0);
}

static void a_lone_packet_is_shaped_from_now_on(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt_change(KT_SET(RATE, RATE_1MB)), 0);
	kt_put(.mark = MARK(0, 1));
	kt_expect_sent(test, 1, 0);
	KUNIT_EXPECT_EQ(test, kt_timer, kt_now + 1 * MSEC);
}

static void a_lone_packet_can_be_peeked_at(struct kunit *test)
{
	kt_create_default(test);
	kt_put(.mark = MARK(0, 9));
	KUNIT_EXPECT_EQ(test, kt_peek(), 1);
	kt_put(.mark = MARK(0, 1));
	KUNIT_EXPECT_EQ(test, kt_peek(), 1);
	kt_expect_sent(test, 1, 2, 0);
}

struct kt_walker {
	struct qdisc_walker walker;
	unsigned long classes[3]; /* by their minor numbers, in the order of the walk */
};

static int kt_note_class(struct Qdisc *sch, unsigned long cl, struct qdisc_walker *arg)
{
	struct kt_walker *walker = container_of(arg, struct kt_walker, walker);

	if (arg->count < ARRAY_SIZE(walker->classes))
		walker->classes[arg->count] = cl;
	return 0;
}

static void a_lone_packet_makes_its_classes_appear(struct kunit *test)
{
	struct kt_walker walker = { .walker.fn = kt_note_class };

	kt_create_default(test);
	kt_put(.mark = MARK(2, 5));
	rtnl_lock();
	mercury_walk(kt.sch, &walker.walker);
	rtnl_unlock();
	KUNIT_EXPECT_EQ(test, walker.walker.count, 3);
	KUNIT_EXPECT_EQ(test, walker.classes[0], MERCURY_MINOR_JOB(2));
	KUNIT_EXPECT_EQ(test, walker.classes[1], MERCURY_MINOR_BAND(2, 4));
	KUNIT_EXPECT_EQ(test, walker.classes[2], MERCURY_MINOR_DEFAULT);
}

static void a_lone_packet_goes_with_a_reset(struct kunit *test)
{
	kt_make_root(KT_HANDLE);
	kt_create_default(test);
	kt_put(.mark = MARK(0, 9));
	kt_reset();
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 0);
	kt_put(.mark = MARK(0, 9));
	kt_destroy();
	KUNIT_EXPECT_EQ(test, atomic_read(&kt.alive), 0);
}

static struct kunit_case mercury_lone_cases[] = {
	KUNIT_CASE(a_lone_packet_is_counted_in_its_band),
	KUNIT_CASE(lone_packets_are_paid_for),
	KUNIT_CASE(who_sends_lone_packets_saves_nothing_up),
	KUNIT_CASE(a_lone_packet_is_overtaken_as_any),
	KUNIT_CASE(a_lone_packet_has_the_deadline_of_its_band),
	KUNIT_CASE(a_lone_packet_survives_a_change),
	KUNIT_CASE(a_lone_packet_is_shaped),
	KUNIT_CASE(a_lone_packet_is_shaped_from_now_on),
	KUNIT_CASE(a_lone_packet_can_be_peeked_at),
	KUNIT_CASE(a_lone_packet_makes_its_classes_appear),
	KUNIT_CASE(a_lone_packet_goes_with_a_reset),
	{}
};

KT_SUITE(lone);

/* --- Everything at once --------------------------------------------------------------------- */

static const u32 kt_seeds[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static void kt_seed_name(const u32 *seed, char *name)
{
	snprintf(name, KUNIT_PARAM_DESC_SIZE, "seed %u", *seed);
}

KUNIT_ARRAY_PARAM(kt_seeds, kt_seeds, kt_seed_name);

static struct rnd_state kt_random;

static u32 kt_below(u32 bound)
{
	return prandom_u32_state(&kt_random) % bound;
}

/* Any of the options that do not say which band a mark means. */
static int kt_change_something(void)
{
	u32 band = kt_below(kt_core()->bands), job = kt_below(kt_core()->jobs);

	switch (kt_below(16)) {
	case 0:
		return kt_change(KT_SET(JOBS, 1 + kt_below(20)));
	case 1:
		return kt_change(KT_SET(BANDS, 2 + kt_below(150)));
	case 2:
		return kt_change(KT_SET(JOBS, 1 + kt_below(5)), KT_SET(BANDS, 2 + kt_below(9)));
	case 3:
		return kt_change(KT_SET(LIMIT, 1 + kt_below(300)));
	case 4:
		return kt_change(KT_SET(MEMORY_LIMIT, MERCURY_MEMORY_MIN + kt_below(1 << 20)));
	case 5:
		return kt_change(KT_SET(RESCUE, kt_below(101)));
	case 6:
		return kt_change(KT_SET(DEFAULT_SHARE, 1 + kt_below(99)));
	case 7:
		return kt_change(KT_SET(RATE, MERCURY_RATE_MIN * (1 + kt_below(1 << 24))));
	case 8:
		return kt_change(KT_SET(RATE, 0));
	case 9:
		return kt_change(KT_SET(SPLIT_GSO, kt_below(3)));
	case 10:
		return kt_change(KT_SET(CE_THRESHOLD, MERCURY_TIME_MIN * (1 + kt_below(9999))));
	case 11:
		return kt_change(KT_DEADLINE(MERCURY_EVERY_JOB, 0, band,
					     MERCURY_TIME_MIN * (1 + kt_below(9999))));
	case 12:
		return kt_change_class(MERCURY_MINOR_BAND(job, band), TCA_MERCURY_CLASS_DEADLINE,
				       MERCURY_TIME_NONE);
	case 13:
		return kt_change_class(MERCURY_MINOR_BAND(job, band), TCA_MERCURY_CLASS_LIMIT,
				       kt_below(20));
	case 14:
		return kt_change_class(MERCURY_MINOR_JOB(job), TCA_MERCURY_CLASS_LIMIT,
				       kt_below(50));
	default:
		return kt_change_class(MERCURY_MINOR_JOB(job), TCA_MERCURY_CLASS_WEIGHT,
				       1 + kt_below(1000));
	}
}

/* The parent and the child. */
static void kt_change_others(void)
{
	kt.parent_peeks = kt_below(2);
	kt.child_holds = kt_below(4) == 0;
	kt.child_mode = kt_below(KT_CHILD_CONGESTED + 1);
}

#define MIX_FLOWS 16

static void kt_put_something(const u32 *marks)
{
	u32 flow = kt_below(MIX_FLOWS);

	if (kt_below(8))
		kt_put(.mark = marks[flow], .flow = flow, .len = 60 + kt_below(3000),
		       .truesize = 1000 + kt_below(20000), .dscp = 1, .ecn = INET_ECN_ECT_0);
	else
		kt_enqueue(kt_make_gso(marks[flow], 1 + kt_below(9), flow));
}

/* Names grow, so those of a flow must, but for segments, which have one name. */
static void kt_get_in_order(struct kunit *test, u32 *last)
{
	u32 id = kt_get();

	if (!id)
		return;
	KUNIT_ASSERT_GE(test, id, last[kt.flow]);
	last[kt.flow] = id;
}

static void flows_stay_in_order_under_a_mix_of_everything(struct kunit *test)
{
	u32 marks[MIX_FLOWS], last[MIX_FLOWS] = {}, i;

	prandom_seed_state(&kt_random, *(const u32 *)test->param_value);
	kt_create_default(test);
	kt_graft_child(test);
	for (i = 0; i < MIX_FLOWS; i++)
		marks[i] = i ? MARK(kt_below(20), 1 + kt_below(100)) : 0;
	kt.splits = true;
	kt.unchecked = true;
	for (i = 0; i < 6000; i++) {
		u32 what = kt_below(100);

		kt_now += kt_below(2 * NSEC_PER_MSEC);
		if (what < 55)
			kt_put_something(marks);
		else if (what < 95)
			kt_get_in_order(test, last);
		else if (what < 98)
			KUNIT_ASSERT_EQ(test, kt_change_something(), 0);
		else
			kt_change_others();
		kt_check_parent(test);
		if (i % 32 == 0)
			kt_check();
	}
	kt.child_holds = false;
	while (kt.sch->q.qlen) {
		kt_now = max(kt_now, kt_timer);
		kt_get_in_order(test, last);
	}
}

static void the_first_band_with_packets_is_always_next(struct kunit *test)
{
	u16 queued[64] = {};
	u32 i, b;

	prandom_seed_state(&kt_random, *(const u32 *)test->param_value);
	kt_create(test, KT_SET(JOBS, 1), KT_SET(RESCUE, 0));
	kt.unchecked = true;
	for (i = 0; i < 5000; i++) {
		kt_now += kt_below(NSEC_PER_MSEC);
		if (kt_below(100) < (i % 1000 < 500 ? 60 : 40)) {
			b = kt_below(64);
			queued[b]++;
			kt_put(.mark = b + 1, .flow = b);
			continue;
		}
		for (b = 0; b < 64 && !queued[b]; b++)
			;
		if (b == 64) {
			KUNIT_ASSERT_EQ(test, kt_get(), 0);
			continue;
		}
		KUNIT_ASSERT_NE(test, kt_get(), 0);
		KUNIT_ASSERT_EQ(test, kt.flow, b);
		queued[b]--;
	}
}

static struct kunit_case mercury_mix_cases[] = {
	KUNIT_CASE_PARAM(flows_stay_in_order_under_a_mix_of_everything, kt_seeds_gen_params),
	KUNIT_CASE_PARAM(the_first_band_with_packets_is_always_next, kt_seeds_gen_params),
	{}
};

KT_SUITE(mix);

kunit_test_suites(&mercury_classify_suite, &mercury_order_suite, &mercury_deadline_suite,
		  &mercury_overload_suite, &mercury_change_suite, &mercury_life_suite,
		  &mercury_gso_suite, &mercury_ecn_suite, &mercury_shaper_suite,
		  &mercury_default_class_suite, &mercury_lone_suite, &mercury_mix_suite);
