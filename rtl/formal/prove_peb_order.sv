// Of any two TLPs the later one leaves first only if PCI Express allows it (2.4.1), and it is no fence that is passed; each leaves once, as what it came as,
// and begins only with room for its class. A Posted Request with room leaves whatever else has none.
module prove_peb_order (
    input wire clk,
    input wire rst,
    input wire [1:0] s_hdr_class,
    input wire s_hdr_relaxed,
    input wire s_hdr_fence,
    input wire s_hdr_valid,
    input wire s_axis_tvalid,
    input wire [2:0] m_room,
    input wire m_axis_tready,
    input wire [7:0] done,
    input wire done_valid,
    input wire halt,
    input wire [7:0] any_former,
    input wire [7:0] any_latter
);
  logic begun = 1'b0;
  always_comb if (!begun) assume (rst);
  always_comb if (begun) assume (!rst);

  logic s_hdr_ready, s_axis_tready, m_axis_tvalid, m_axis_tlast, busy;
  logic [1:0] m_axis_tuser;
  logic [7:0] m_axis_tdata;
  logic [0:0] m_axis_tkeep;
  logic completion_room;
  logic [31:0] stat_passed, stat_timeouts;

  // A TLP of one beat that is its place in the order of coming.
  logic [7:0] came = '0, last_came;
  assign last_came = came - 1'b1;

  es_peb_order #(
      .DATA_W(8),
      .POSTED_DEPTH(4),
      .NON_POSTED_DEPTH(4),
      .COMPLETION_DEPTH(4),
      .TLPS(4),
      .NON_POSTED_TLPS(4),
      .FENCE_CLOCKS(0)
  ) dut (
      .clear(rst),
      .s_hdr_transaction(26'(came)),
      .s_axis_tdata(last_came),
      .s_axis_tkeep(1'b1),
      .s_axis_tlast(1'b1),
      .done(26'(done)),
      .*
  );

  always_comb begin
    if (s_hdr_valid) assume (s_hdr_class != 2'd3 && (!s_hdr_fence || s_hdr_class == es_peb_pkg::NON_POSTED));
  end

  // The solver picks two.
  logic [7:0] former, latter;
  logic former_came = 1'b0, latter_came = 1'b0, former_left = 1'b0, latter_left = 1'b0, former_done = 1'b0;
  logic [1:0] former_class, latter_class;
  logic former_fence, latter_relaxed;
  logic put, leaves;
  assign put = s_hdr_valid && s_hdr_ready;
  assign leaves = m_axis_tvalid && m_axis_tready;

  // Only what has left is answered.
  always_comb if (done_valid) assume (done != former || former_left);

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) begin
      former <= any_former;
      latter <= any_latter;
    end
    if (put) begin
      came <= came + 1'b1;
      if (came == former) begin
        former_came  <= 1'b1;
        former_class <= s_hdr_class;
        former_fence <= s_hdr_fence;
      end
      if (came == latter) begin
        latter_came <= 1'b1;
        latter_class <= s_hdr_class;
        latter_relaxed <= s_hdr_relaxed;
      end
    end
    if (leaves && m_axis_tdata == former) former_left <= 1'b1;
    if (leaves && m_axis_tdata == latter) latter_left <= 1'b1;
    if (done_valid && done == former) former_done <= 1'b1;
    if (rst) begin
      came <= '0;
      former_came <= 1'b0;
      latter_came <= 1'b0;
      former_left <= 1'b0;
      latter_left <= 1'b0;
      former_done <= 1'b0;
    end
  end

  // Room of the clock in which a TLP begins: the one before it is first at the output.
  logic [2:0] room_before;
  logic was_busy = 1'b0, was_halt = 1'b0;
  always_ff @(posedge clk) begin
    room_before <= m_room;
    was_busy <= busy && !rst;
    was_halt <= halt;
  end

  // Clocks in which a Posted Request could leave, since one waits.
  logic [3:0] chances = '0;
  logic [7:0] posted = '0;
  logic any_fence = 1'b0;
  always_ff @(posedge clk) begin
    posted <= posted + 8'(put && s_hdr_class == es_peb_pkg::POSTED) - 8'(leaves && m_axis_tuser == es_peb_pkg::POSTED);
    if (put && s_hdr_fence) any_fence <= 1'b1;
    if (posted != '0 && m_room == 3'b001 && m_axis_tready && s_axis_tvalid && !halt && !(leaves && m_axis_tuser == es_peb_pkg::POSTED))
      chances <= chances + 1'b1;
    else chances <= '0;
    if (rst) begin
      posted <= '0;
      any_fence <= 1'b0;
      chances <= '0;
    end
  end

  always_comb
    if (begun && !rst && former < latter) begin
      if (leaves && m_axis_tdata == latter) begin
        assert (latter_came && !latter_left);
        assert (m_axis_tuser == latter_class);
        if (!former_left) begin
          assert (former_class != latter_class);
          assert (former_class != es_peb_pkg::POSTED || (latter_class == es_peb_pkg::COMPLETION && latter_relaxed));
        end
        if (former_came && former_fence && latter_class != es_peb_pkg::COMPLETION) assert (former_left && former_done);
      end
      if (leaves) assert (m_axis_tdata < came);
    end
  always_comb
    if (begun && !rst) begin
      if (busy && !was_busy) assert (room_before[m_axis_tuser] && !was_halt);
      if (!any_fence) assert (chances < 4'd9);
    end
endmodule
